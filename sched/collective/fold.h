// Fold: how a world that is no power of two runs an algorithm made for Q = 2^floor(log2 P) ranks.
// The first 2(P-Q) ranks pair up; the even one of a pair gives its vector to the odd one and gets
// the result from it.
#pragma once

#include "sched/base/partition.h"
#include "sched/builder.h"

namespace sinew::sched {

class Fold {
 public:
  explicit Fold(int world) : participants_(1 << floor_log2(world)), pairs_(world - participants_) {}

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
