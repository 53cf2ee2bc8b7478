// Binomial tree: in round k of a broadcast every rank that has the value sends it 2^(L-1-k) ranks
// further; a reduce runs the same tree backwards. Ranks count from the root, so any root and any
// world.
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
    .generate = binomial_all_reduce,
    .chunks_per_block = one_chunk,
    .refuse = any_world,
    .cost = binomial_all_reduce_cost,
};

constinit const Algorithm kBinomialBroadcast = {
    .op = Collective::kBroadcast,
    .name = "binomial",
    .formula = "L(a + m b)",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generate = binomial_broadcast,
    .chunks_per_block = one_chunk,
    .refuse = any_world,
    .cost = binomial_broadcast_cost,
};

constinit const Algorithm kBinomialReduce = {
    .op = Collective::kReduce,
    .name = "binomial",
    .formula = "L(a + m b + m g)",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generate = binomial_reduce,
    .chunks_per_block = one_chunk,
    .refuse = any_world,
    .cost = binomial_reduce_cost,
};

constinit const Algorithm kBinomialBarrier = {
    .op = Collective::kBarrier,
    .name = "binomial",
    .formula = "2L a",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generate = binomial_all_reduce,
    .chunks_per_block = one_chunk,
    .refuse = any_world,
    .cost = binomial_barrier_cost,
};

}  // namespace sinew::sched
