// Binomial tree: in round k of a broadcast every rank that has the value sends it 2^(L-1-k) ranks
// further; a reduce runs the same tree backwards. Ranks count from the root, so any root and any
// world.
//
// Cost: L = ceil(log2 P) rounds of the whole vector; all-reduce is a reduce to rank 0 and a
// broadcast from it.
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

}  // namespace

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

}  // namespace sinew::sched
