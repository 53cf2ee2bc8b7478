// k-nomial tree: a binomial tree in radix k: in the round of weight w = .. k^2, k, 1 every rank
// that has the value sends it to the ranks w, 2w, ... (k-1)w further on. A reduce runs the tree
// backwards. Ranks count from the root.
//
// Cost: with one port the k-1 messages of a round go one after the other: (k-1) log_k P of the
// whole vector for P = k^i, else the longest path of the tree that remains. A larger radix pays
// where a rank can send several messages at a time (`ports` in a topology, or mapped memory): then
// a round is one phase. Any world. Vadhiyar, Fagg, Dongarra, SC 2000.
//
// Picture: broadcast knomial_4, 4 ranks
//   round 1   0 -c0-> 1
//   round 2   0 -c0-> 2
//   round 3   0 -c0-> 3
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0        .        .        .
//   round 1    0        0        .        .
//   round 2    0        0        0        .
//   round 3    0        0        0        0
//
// Picture: reduce knomial_4, 4 ranks
//   round 1   3 -c0+-> 0
//   round 2   2 -c0+-> 0
//   round 3   1 -c0+-> 0
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0        1        2        3
//   round 1    03       1        2        3
//   round 2    023      1        2        3
//   round 3    *        1        2        3
#include <algorithm>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

// The largest weight of a tree.
int top_weight(int world, int radix) {
  int weight = 1;
  while (weight * radix < world) weight *= radix;
  return weight;
}

template <int kRadix>
void knomial_broadcast(const Params&, Builder& b) {
  const int world = b.world();
  for (int weight = top_weight(world, kRadix); weight > 0; weight /= kRadix) {
    for (int digit = 1; digit < kRadix; ++digit) {
      for (int place = 0; place + digit * weight < world; place += kRadix * weight) {
        b.copy({.chunk = 0,
                .chunks = b.chunks(),
                .from = mod(b.root() + place, world),
                .to = mod(b.root() + place + digit * weight, world)});
      }
    }
  }
}

template <int kRadix>
void knomial_reduce(const Params&, Builder& b) {
  const int world = b.world();
  for (int weight = 1; weight < world; weight *= kRadix) {
    for (int digit = kRadix - 1; digit > 0; --digit) {
      for (int place = 0; place + digit * weight < world; place += kRadix * weight) {
        b.reduce({.chunk = 0,
                  .chunks = b.chunks(),
                  .from = mod(b.root() + place + digit * weight, world),
                  .to = mod(b.root() + place, world)});
      }
    }
  }
}

// When the last rank has a broadcast's value: a rank waits for its digit at each weight, or sends
// to all its children there.
template <int kRadix>
double longest_path(int world) {
  int longest = 0;
  for (int rank = 0; rank < world; ++rank) {
    int rounds = 0;
    int ancestor = 0;
    for (int weight = top_weight(world, kRadix); weight > 0; weight /= kRadix) {
      const int digit = rank / weight % kRadix;
      const int children = (world - 1 - ancestor) / weight;
      rounds += digit > 0 ? digit : std::min(kRadix - 1, children);
      ancestor += digit * weight;
    }
    longest = std::max(longest, rounds);
  }
  return longest;
}

template <int kRadix>
Cost knomial_broadcast_cost(const Params& params) {
  const double path = longest_path<kRadix>(params.world);
  return {path, path, 0};
}
template <int kRadix>
Cost knomial_reduce_cost(const Params& params) {
  const double path = longest_path<kRadix>(params.world);
  return {path, path, path};
}

}  // namespace

constinit const Algorithm kKnomial4Broadcast = {
    .op = Collective::kBroadcast,
    .name = "knomial_4",
    .formula = "3 log4 P (a + m b) for P = 4^i, else the longest path",
    .source = "Vadhiyar, Fagg, Dongarra, SC 2000",
    .generate = knomial_broadcast<4>,
    .chunks_per_block = one_chunk,
    .refuse = any_world,
    .cost = knomial_broadcast_cost<4>,
};

constinit const Algorithm kKnomial4Reduce = {
    .op = Collective::kReduce,
    .name = "knomial_4",
    .formula = "3 log4 P (a + m b + m g) for P = 4^i, else the longest path",
    .source = "Vadhiyar, Fagg, Dongarra, SC 2000",
    .generate = knomial_reduce<4>,
    .chunks_per_block = one_chunk,
    .refuse = any_world,
    .cost = knomial_reduce_cost<4>,
};

}  // namespace sinew::sched
