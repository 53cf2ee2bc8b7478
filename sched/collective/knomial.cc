// k-nomial tree: a binomial tree in radix r: in the round of weight w = .. r^2, r, 1 every rank
// that has the value sends it to the ranks w, 2w, ... (r-1)w further on. A reduce runs the tree
// backwards. Ranks count from the root.
//
// Cost: with one port the r-1 messages of a round go one after the other: (r-1) log_r P of the
// whole vector for P = r^i, else the longest path of the tree that remains. A larger radix pays
// where a rank can send several messages at a time (`ports` in a topology, or mapped memory): then
// a round is one phase. Any world. Vadhiyar, Fagg, Dongarra, SC 2000.
//
// Picture: broadcast knomial, 4 ranks
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
// Picture: reduce knomial, 4 ranks
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

void knomial_broadcast(const Params& params, Builder& b) {
  const int world = b.world();
  for (int weight = top_weight(world, params.radix); weight > 0; weight /= params.radix) {
    for (int digit = 1; digit < params.radix; ++digit) {
      for (int place = 0; place + digit * weight < world; place += params.radix * weight) {
        b.copy({.chunk = 0,
                .chunks = b.chunks(),
                .from = mod(b.root() + place, world),
                .to = mod(b.root() + place + digit * weight, world)});
      }
    }
  }
}

void knomial_reduce(const Params& params, Builder& b) {
  const int world = b.world();
  for (int weight = 1; weight < world; weight *= params.radix) {
    for (int digit = params.radix - 1; digit > 0; --digit) {
      for (int place = 0; place + digit * weight < world; place += params.radix * weight) {
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
double longest_path(int world, int radix) {
  int longest = 0;
  for (int rank = 0; rank < world; ++rank) {
    int rounds = 0;
    int ancestor = 0;
    for (int weight = top_weight(world, radix); weight > 0; weight /= radix) {
      const int digit = rank / weight % radix;
      const int children = (world - 1 - ancestor) / weight;
      rounds += digit > 0 ? digit : std::min(radix - 1, children);
      ancestor += digit * weight;
    }
    longest = std::max(longest, rounds);
  }
  return longest;
}

Cost knomial_broadcast_cost(const Params& params) {
  const double path = longest_path(params.world, params.radix);
  return {path, path, 0};
}
Cost knomial_reduce_cost(const Params& params) {
  const double path = longest_path(params.world, params.radix);
  return {path, path, path};
}

}  // namespace

constinit const Algorithm kKnomialBroadcast = {
    .op = Collective::kBroadcast,
    .name = "knomial",
    .formula = "(r-1) log_r P (a + m b) for P = r^i, else the longest path",
    .source = "Vadhiyar, Fagg, Dongarra, SC 2000",
    .generator = knomial_broadcast,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = knomial_broadcast_cost,
    .radix = 4,
};

constinit const Algorithm kKnomialReduce = {
    .op = Collective::kReduce,
    .name = "knomial",
    .formula = "(r-1) log_r P (a + m b + m g) for P = r^i, else the longest path",
    .source = "Vadhiyar, Fagg, Dongarra, SC 2000",
    .generator = knomial_reduce,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = knomial_reduce_cost,
    .radix = 4,
};

}  // namespace sinew::sched
