// Dissemination: a barrier in which, in round k, rank r tells rank r + 2^k all it has heard. After
// ceil(log2 P) rounds everybody has heard of everybody, for any P: some of them twice, which a
// barrier may.
//
// Cost: L = ceil(log2 P) rounds, the lower bound. Hensgen, Finkel, Manber, IJPP 1988.
//
// Picture: barrier dissemination, 4 ranks
//   round 1   0 -c0+-> 1  1 -c0+-> 2  2 -c0+-> 3  3 -c0+-> 0
//   round 2   0 -c0+-> 2  1 -c0+-> 3  2 -c0+-> 0  3 -c0+-> 1
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0        1        2        3
//   round 1    03       01       12       23
//   round 2    *        *        *        *
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

void dissemination_barrier(const Params&, Builder& b) {
  for (int distance = 1; distance < b.world(); distance *= 2) {
    std::vector<Builder::Message> messages;
    for (int rank = 0; rank < b.world(); ++rank) {
      messages.push_back(b.post({.chunk = 0, .from = rank, .to = mod(rank + distance, b.world())}));
    }
    for (const Builder::Message& message : messages) b.receive_reduce(message);
  }
}

Cost dissemination_barrier_cost(const Params& params) {
  return {static_cast<double>(ceil_log2(params.world)), 0, 0};
}

}  // namespace

constinit const Algorithm kDisseminationBarrier = {
    .op = Collective::kBarrier,
    .name = "dissemination",
    .formula = "L a",
    .source = "Hensgen, Finkel, Manber, IJPP 1988",
    .generate = dissemination_barrier,
    .chunks_per_block = one_chunk,
    .refuse = any_world,
    .cost = dissemination_barrier_cost,
};

}  // namespace sinew::sched
