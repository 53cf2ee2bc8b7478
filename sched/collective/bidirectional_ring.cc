// Bidirectional ring: every block travels both ways around the ring at once, to the half of the
// ranks on either side, so that both directions of every link are used.
//
// Terms: in an all-gather rank r's block goes right to the ranks r+1 .. r+h with h = ceil((P-1)/2),
// and left to the others. A round is one step to the right and one to the left. Reduce-scatter runs
// it backwards, with sums: each block collects two partial sums, which meet at its rank. All-reduce
// is one after the other.
//
// Cost: with one port the P-1 messages of a ring; with a port for each direction (`ports 2` in a
// topology) two at a time, half of the ring's time. Any world. Chan, Heimlich, Purkayastha, van de
// Geijn, CCPE 2007, section 5.
//
// Picture: all_gather bidirectional_ring, 4 ranks
//   round 1   0 -c0-> 1  1 -c1-> 2  2 -c2-> 3  3 -c3-> 0
//   round 2   0 -c0-> 3  1 -c1-> 0  2 -c2-> 1  3 -c3-> 2
//   round 3   0 -c3-> 1  1 -c0-> 2  2 -c1-> 3  3 -c2-> 0
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 . . .  . 1 . .  . . 2 .  . . . 3
//   round 1    0 . . 3  0 1 . .  . 1 2 .  . . 2 3
//   round 2    0 1 . 3  0 1 2 .  . 1 2 3  0 . 2 3
//   round 3    0 1 2 3  0 1 2 3  0 1 2 3  0 1 2 3
//
// Picture: reduce_scatter bidirectional_ring, 4 ranks
//   round 1   0 -c2+-> 3  1 -c3+-> 0  2 -c0+-> 1  3 -c1+-> 2
//   round 2   0 -c3+-> 3  1 -c0+-> 0  2 -c1+-> 1  3 -c2+-> 2
//   round 3   0 -c1+-> 1  1 -c2+-> 2  2 -c3+-> 3  3 -c0+-> 0
//
//   held       rank 0      rank 1      rank 2      rank 3
//   start      0 0 0 0     1 1 1 1     2 2 2 2     3 3 3 3
//   round 1    0 0 0 01    12 1 1 1    2 23 2 2    3 3 03 3
//   round 2    012 0 0 01  12 123 1 1  2 23 023 2  3 3 03 013
//   round 3    * 0 0 01    12 * 1 1    2 23 * 2    3 3 03 *
#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

double share(const Params& params) { return (params.world - 1.0) / params.world; }
double others(const Params& params) { return params.world - 1.0; }

// Calls visit(block, way, step): the block's step-th move (from 0) to the right (way 1) or left
// (-1).
template <typename Visit>
void for_each_move(int world, bool backwards, Visit visit) {
  const int most = world / 2;  // h
  for (int i = 0; i < most; ++i) {
    const int step = backwards ? most - 1 - i : i;
    for (const int way : {1, -1}) {
      const int steps = way > 0 ? most : world - 1 - most;
      if (step >= steps) continue;
      for (int block = 0; block < world; ++block) visit(block, way, step);
    }
  }
}

void gather_both_ways(Builder& b) {
  const int world = b.world();
  for_each_move(world, false, [&](int block, int way, int step) {
    const int from = mod(block + way * step, world);
    b.copy({.chunk = block, .from = from, .to = mod(from + way, world)});
  });
}

void scatter_both_ways(Builder& b) {
  const int world = b.world();
  for_each_move(world, true, [&](int block, int way, int step) {
    const int to = mod(block + way * step, world);
    b.reduce({.chunk = block, .from = mod(to + way, world), .to = to});
  });
}

void bidirectional_ring_all_gather(const Params&, Builder& b) { gather_both_ways(b); }

void bidirectional_ring_reduce_scatter(const Params&, Builder& b) { scatter_both_ways(b); }

void bidirectional_ring_all_reduce(const Params&, Builder& b) {
  scatter_both_ways(b);
  gather_both_ways(b);
}

Cost bidirectional_ring_all_gather_cost(const Params& params) {
  return {others(params), share(params), 0};
}
Cost bidirectional_ring_reduce_scatter_cost(const Params& params) {
  return {others(params), share(params), share(params)};
}
Cost bidirectional_ring_all_reduce_cost(const Params& params) {
  return {2 * others(params), 2 * share(params), share(params)};
}

constexpr const char* kSource = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007";

}  // namespace

constinit const Algorithm kBidirectionalRingAllReduce = {
    .op = Collective::kAllReduce,
    .name = "bidirectional_ring",
    .formula = "2(P-1)a + 2(P-1)/P m b + (P-1)/P m g; with two ports half of a and b",
    .source = kSource,
    .generator = bidirectional_ring_all_reduce,
    .chunks_of = chunk_per_rank,
    .rule = any_world,
    .closed_form = bidirectional_ring_all_reduce_cost,
};

constinit const Algorithm kBidirectionalRingReduceScatter = {
    .op = Collective::kReduceScatter,
    .name = "bidirectional_ring",
    .formula = "(P-1)a + (P-1)/P m (b + g); with two ports half of a and b",
    .source = kSource,
    .generator = bidirectional_ring_reduce_scatter,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = bidirectional_ring_reduce_scatter_cost,
};

constinit const Algorithm kBidirectionalRingAllGather = {
    .op = Collective::kAllGather,
    .name = "bidirectional_ring",
    .formula = "(P-1)a + (P-1)/P m b; with two ports half of it",
    .source = kSource,
    .generator = bidirectional_ring_all_gather,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = bidirectional_ring_all_gather_cost,
};

}  // namespace sinew::sched
