// Binomial tree: in round k of a broadcast every rank that has the value sends it 2^(L-1-k) ranks
// further; a reduce runs the same tree backwards. Ranks count from the root, so any root and any
// world.
//
// Gather and scatter move along the same trees, a subtree's blocks as one message: L rounds, and
// (P-1)/P of the vector into or out of the root.
//
// Cost: L = ceil(log2 P) rounds of the whole vector; all-reduce is a reduce to rank 0 and a
// broadcast from it.
//
// Picture: all_reduce binomial, 4 ranks
//   round 1   1 -c0+-> 0  3 -c0+-> 2
//   round 2   2 -c0+-> 0
//   round 3   0 -c0-> 2
//   round 4   0 -c0-> 1  2 -c0-> 3
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0        1        2        3
//   round 1    01       1        23       3
//   round 2    *        1        23       3
//   round 3    *        1        *        3
//   round 4    *        *        *        *
//
// Picture: gather binomial, 4 ranks
//   round 1   1 -c1-> 0  3 -c3-> 2
//   round 2   2 -c2..3-> 0
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 . . .  . 1 . .  . . 2 .  . . . 3
//   round 1    0 1 . .  . 1 . .  . . 2 3  . . . 3
//   round 2    0 1 2 3  . 1 . .  . . 2 3  . . . 3
//
// Picture: scatter binomial, 4 ranks
//   round 1   0 -c2..3-> 2
//   round 2   0 -c1-> 1  2 -c3-> 3
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 0 0 0  . . . .  . . . .  . . . .
//   round 1    0 0 0 0  . . . .  . . 0 0  . . . .
//   round 2    0 0 0 0  . 0 . .  . . 0 0  . . . 0
#include <algorithm>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

void broadcast_from(Builder& b, int root) {
  const int world = b.world();
  for (int level = ceil_log2(world) - 1; level >= 0; --level) {
    const int distance = 1 << level;
    for (int place = 0; place + distance < world; place += 2 * distance) {
      b.copy({.chunk = 0,
              .chunks = b.chunks(),
              .from = mod(root + place, world),
              .to = mod(root + place + distance, world)});
    }
  }
}

void reduce_to(Builder& b, int root) {
  const int world = b.world();
  for (int distance = 1; distance < world; distance *= 2) {
    for (int place = 0; place + distance < world; place += 2 * distance) {
      b.reduce({.chunk = 0,
                .chunks = b.chunks(),
                .from = mod(root + place + distance, world),
                .to = mod(root + place, world)});
    }
  }
}

// The blocks of the subtree at `place` whose parent is `distance` places before it.
int blocks_below(int world, int place, int distance) { return std::min(distance, world - place); }

void binomial_gather(const Params&, Builder& b) {
  const int world = b.world();
  for (int distance = 1; distance < world; distance *= 2) {
    for (int place = distance; place < world; place += 2 * distance) {
      const int from = mod(b.root() + place, world);
      b.copy({.chunk = from,
              .chunks = blocks_below(world, place, distance),
              .from = from,
              .to = mod(from - distance, world)});
    }
  }
}

void binomial_scatter(const Params&, Builder& b) {
  const int world = b.world();
  for (int level = ceil_log2(world) - 1; level >= 0; --level) {
    const int distance = 1 << level;
    for (int place = distance; place < world; place += 2 * distance) {
      const int to = mod(b.root() + place, world);
      b.copy({.chunk = to,
              .chunks = blocks_below(world, place, distance),
              .from = mod(to - distance, world),
              .to = to});
    }
  }
}

void binomial_broadcast(const Params&, Builder& b) { broadcast_from(b, b.root()); }

void binomial_reduce(const Params&, Builder& b) { reduce_to(b, b.root()); }

void binomial_all_reduce(const Params&, Builder& b) {
  reduce_to(b, 0);
  broadcast_from(b, 0);
}

Cost binomial_broadcast_cost(const Params& params) {
  const double levels = ceil_log2(params.world);
  return {levels, levels, 0};
}

Cost binomial_reduce_cost(const Params& params) {
  const double levels = ceil_log2(params.world);
  return {levels, levels, levels};
}

Cost binomial_scatter_cost(const Params& params) {
  return {static_cast<double>(ceil_log2(params.world)), (params.world - 1.0) / params.world, 0};
}

Cost binomial_all_reduce_cost(const Params& params) {
  const double levels = ceil_log2(params.world);
  return {2 * levels, 2 * levels, levels};
}

Cost binomial_barrier_cost(const Params& params) { return {2.0 * ceil_log2(params.world), 0, 0}; }

}  // namespace

constinit const Algorithm kBinomialAllReduce = {
    .op = Collective::kAllReduce,
    .name = "binomial",
    .formula = "2L(a + m b) + L m g",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = binomial_all_reduce,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = binomial_all_reduce_cost,
};

constinit const Algorithm kBinomialBroadcast = {
    .op = Collective::kBroadcast,
    .name = "binomial",
    .formula = "L(a + m b)",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = binomial_broadcast,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = binomial_broadcast_cost,
};

constinit const Algorithm kBinomialReduce = {
    .op = Collective::kReduce,
    .name = "binomial",
    .formula = "L(a + m b + m g)",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = binomial_reduce,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = binomial_reduce_cost,
};

constinit const Algorithm kBinomialGather = {
    .op = Collective::kGather,
    .name = "binomial",
    .formula = "L a + (P-1)/P m b",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = binomial_gather,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = binomial_scatter_cost,
};

constinit const Algorithm kBinomialScatter = {
    .op = Collective::kScatter,
    .name = "binomial",
    .formula = "L a + (P-1)/P m b",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = binomial_scatter,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = binomial_scatter_cost,
};

constinit const Algorithm kBinomialBarrier = {
    .op = Collective::kBarrier,
    .name = "binomial",
    .formula = "2L a",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = binomial_all_reduce,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = binomial_barrier_cost,
};

}  // namespace sinew::sched
