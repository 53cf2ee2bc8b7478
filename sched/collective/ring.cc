// Ring: every rank sends to its right neighbour and receives from its left one, one chunk a round.
//
// Terms: P chunks, one per rank. Reduce-scatter takes P-1 rounds and leaves one finished chunk on
// each rank; all-gather takes P-1 more and copies each finished chunk once around. All-reduce is
// one after the other. Cost: all-reduce 2(P-1) rounds and 2(P-1)/P of the vector sent, (P-1)/P of
// it reduced, by every rank: the bandwidth bound. Any world. Patarasuk and Yuan, JPDC 2009.
//
// Picture: all_reduce ring, 4 ranks
//   round 1   0 -c0+-> 1  1 -c1+-> 2  2 -c2+-> 3  3 -c3+-> 0
//   round 2   0 -c3+-> 1  1 -c0+-> 2  2 -c1+-> 3  3 -c2+-> 0
//   round 3   0 -c2+-> 1  1 -c3+-> 2  2 -c0+-> 3  3 -c1+-> 0
//   round 4   0 -c1-> 1  1 -c2-> 2  2 -c3-> 3  3 -c0-> 0
//   round 5   0 -c0-> 1  1 -c1-> 2  2 -c2-> 3  3 -c3-> 0
//   round 6   0 -c3-> 1  1 -c0-> 2  2 -c1-> 3  3 -c2-> 0
//
//   held       rank 0      rank 1      rank 2      rank 3
//   start      0 0 0 0     1 1 1 1     2 2 2 2     3 3 3 3
//   round 1    0 0 0 03    01 1 1 1    2 12 2 2    3 3 23 3
//   round 2    0 0 023 03  01 1 1 013  012 12 2 2  3 123 23 3
//   round 3    0 * 023 03  01 1 * 013  012 12 2 *  * 123 23 3
//   round 4    * * 023 03  01 * * 013  012 12 * *  * 123 23 *
//   round 5    * * 023 *   * * * 013   012 * * *   * 123 * *
//   round 6    * * * *     * * * *     * * * *     * * * *
#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

double share(const Params& params) { return (params.world - 1.0) / params.world; }

void ring_all_reduce(const Params&, Builder& b) {
  const int world = b.world();
  for (int round = 0; round < world - 1; ++round) {
    for (int rank = 0; rank < world; ++rank) {
      b.reduce({.chunk = mod(rank - round, world), .from = rank, .to = mod(rank + 1, world)});
    }
  }
  for (int round = 0; round < world - 1; ++round) {
    for (int rank = 0; rank < world; ++rank) {
      b.copy({.chunk = mod(rank + 1 - round, world), .from = rank, .to = mod(rank + 1, world)});
    }
  }
}

// Starts one chunk lower than all-reduce does, so that rank r ends with chunk r.
void ring_reduce_scatter(const Params&, Builder& b) {
  const int world = b.world();
  for (int round = 0; round < world - 1; ++round) {
    for (int rank = 0; rank < world; ++rank) {
      b.reduce({.chunk = mod(rank - 1 - round, world), .from = rank, .to = mod(rank + 1, world)});
    }
  }
}

void ring_all_gather(const Params&, Builder& b) {
  const int world = b.world();
  for (int round = 0; round < world - 1; ++round) {
    for (int rank = 0; rank < world; ++rank) {
      b.copy({.chunk = mod(rank - round, world), .from = rank, .to = mod(rank + 1, world)});
    }
  }
}

Cost ring_all_reduce_cost(const Params& params) {
  return {2.0 * (params.world - 1), 2 * share(params), share(params)};
}

Cost ring_reduce_scatter_cost(const Params& params) {
  return {params.world - 1.0, share(params), share(params)};
}

Cost ring_all_gather_cost(const Params& params) { return {params.world - 1.0, share(params), 0}; }

}  // namespace

constinit const Algorithm kRingAllReduce = {
    .op = Collective::kAllReduce,
    .name = "ring",
    .formula = "2(P-1)a + 2(P-1)/P m b + (P-1)/P m g",
    .source = "Patarasuk and Yuan, JPDC 2009",
    .generator = ring_all_reduce,
    .chunks_of = chunk_per_rank,
    .rule = any_world,
    .closed_form = ring_all_reduce_cost,
};

constinit const Algorithm kRingReduceScatter = {
    .op = Collective::kReduceScatter,
    .name = "ring",
    .formula = "(P-1)a + (P-1)/P m (b + g)",
    .source = "Patarasuk and Yuan, JPDC 2009",
    .generator = ring_reduce_scatter,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = ring_reduce_scatter_cost,
};

constinit const Algorithm kRingAllGather = {
    .op = Collective::kAllGather,
    .name = "ring",
    .formula = "(P-1)a + (P-1)/P m b",
    .source = "Patarasuk and Yuan, JPDC 2009",
    .generator = ring_all_gather,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = ring_all_gather_cost,
};

}  // namespace sinew::sched
