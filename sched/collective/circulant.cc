// Circulant: reduce-scatter and all-gather in ceil(log2 P) rounds for any P, each rank sending,
// receiving and reducing exactly P-1 blocks.
//
// Terms: skips P = s0 > s1 > ... > 1 with s(k+1) = ceil(s(k)/2). Rank r keeps a partial sum for
// each of ranks r, r+1, ... r+s-1 (cyclically). A round with skip s' = ceil(s/2) sends the sums for
// r+s' .. r+s-1 to rank r+s', which adds them to its own first s-s' sums. The all-gather runs the
// rounds backwards, copying. Traeff, "Optimal, non-pipelined reduce-scatter and allreduce
// algorithms", 2024 (arXiv 2410.14234).
//
// Picture: all_reduce circulant, 4 ranks
//   round 1   0 -c2..3+-> 2  1 -c3,0+-> 3  2 -c0..1+-> 0  3 -c1..2+-> 1
//   round 2   0 -c1+-> 1  1 -c2+-> 2  2 -c3+-> 3  3 -c0+-> 0
//   round 3   0 -c0-> 3  1 -c1-> 0  2 -c2-> 1  3 -c3-> 2
//   round 4   0 -c0..1-> 2  1 -c1..2-> 3  2 -c2..3-> 0  3 -c3,0-> 1
//
//   held       rank 0     rank 1     rank 2     rank 3
//   start      0 0 0 0    1 1 1 1    2 2 2 2    3 3 3 3
//   round 1    02 02 0 0  1 13 13 1  2 2 02 02  13 3 3 13
//   round 2    * 02 0 0   1 * 13 1   2 2 * 02   13 3 3 *
//   round 3    * * 0 0    1 * * 1    2 2 * *    * 3 3 *
//   round 4    * * * *    * * * *    * * * *    * * * *
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

struct Round {
  int skip;    // s'
  int blocks;  // s - s'
};

std::vector<Round> rounds_of(int world) {
  std::vector<Round> rounds;
  for (int size = world; size > 1;) {
    const int skip = (size + 1) / 2;
    rounds.push_back({skip, size - skip});
    size = skip;
  }
  return rounds;
}

void scatter_sums(Builder& b) {
  for (const Round& round : rounds_of(b.world())) {
    for (int rank = 0; rank < b.world(); ++rank) {
      const int to = mod(rank + round.skip, b.world());
      b.reduce({.chunk = to, .chunks = round.blocks, .from = rank, .to = to});
    }
  }
}

void gather_back(Builder& b) {
  const std::vector<Round> rounds = rounds_of(b.world());
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    for (int rank = 0; rank < b.world(); ++rank) {
      b.copy({.chunk = rank,
              .chunks = round->blocks,
              .from = rank,
              .to = mod(rank - round->skip, b.world())});
    }
  }
}

double levels(const Params& params) { return ceil_log2(params.world); }
double share(const Params& params) { return (params.world - 1.0) / params.world; }

void circulant_reduce_scatter(const Params&, Builder& b) { scatter_sums(b); }

void circulant_all_gather(const Params&, Builder& b) { gather_back(b); }

void circulant_all_reduce(const Params&, Builder& b) {
  scatter_sums(b);
  gather_back(b);
}

Cost circulant_reduce_scatter_cost(const Params& params) {
  return {levels(params), share(params), share(params)};
}
Cost circulant_all_gather_cost(const Params& params) { return {levels(params), share(params), 0}; }
Cost circulant_all_reduce_cost(const Params& params) {
  return {2 * levels(params), 2 * share(params), share(params)};
}

}  // namespace

constinit const Algorithm kCirculantAllReduce = {
    .op = Collective::kAllReduce,
    .name = "circulant",
    .formula = "2L a + 2(P-1)/P m b + (P-1)/P m g",
    .source = "Traeff 2024, arXiv 2410.14234",
    .generate = circulant_all_reduce,
    .chunks_per_block = chunk_per_rank,
    .refuse = any_world,
    .cost = circulant_all_reduce_cost,
};

constinit const Algorithm kCirculantReduceScatter = {
    .op = Collective::kReduceScatter,
    .name = "circulant",
    .formula = "L a + (P-1)/P m (b + g)",
    .source = "Traeff 2024, arXiv 2410.14234",
    .generate = circulant_reduce_scatter,
    .chunks_per_block = one_chunk,
    .refuse = any_world,
    .cost = circulant_reduce_scatter_cost,
};

constinit const Algorithm kCirculantAllGather = {
    .op = Collective::kAllGather,
    .name = "circulant",
    .formula = "L a + (P-1)/P m b",
    .source = "Traeff 2024, arXiv 2410.14234",
    .generate = circulant_all_gather,
    .chunks_per_block = one_chunk,
    .refuse = any_world,
    .cost = circulant_all_gather_cost,
};

}  // namespace sinew::sched
