// Fold: how a world runs an algorithm made for Q < P ranks, as 2^floor(log2 P), Q at least P/2.
// The first 2(P-Q) ranks pair up; the even one of a pair gives its vector to the odd one and gets
// the result from it.
#pragma once

#include "sched/base/check.h"
#include "sched/base/partition.h"
#include "sched/builder.h"

namespace sinew::sched {

class Fold {
 public:
  explicit Fold(int world) : Fold(world, 1 << floor_log2(world)) {}
  Fold(int world, int participants) : participants_(participants), pairs_(world - participants) {
    CHECK_GE(pairs_, 0);
    CHECK_LE(pairs_, participants_);
  }

  [[nodiscard]] int participants() const { return participants_; }
  // The rank in place 0 .. participants - 1.
  [[nodiscard]] int rank(int place) const {
    return place < pairs_ ? 2 * place + 1 : place + pairs_;
  }

  void reduce_in(Builder& b) const {
    for (int pair = 0; pair < pairs_; ++pair) {
      b.reduce({.chunk = 0, .chunks = b.chunks(), .from = 2 * pair, .to = 2 * pair + 1});
    }
  }
  void copy_out(Builder& b) const {
    for (int pair = 0; pair < pairs_; ++pair) {
      b.copy({.chunk = 0, .chunks = b.chunks(), .from = 2 * pair + 1, .to = 2 * pair});
    }
  }

 private:
  int participants_;
  int pairs_;
};

}  // namespace sinew::sched
