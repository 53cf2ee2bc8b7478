// Dissemination: a barrier in which, in round k, every rank tells the rank 2^k further on all it
// has heard. After ceil(log2 P) rounds everybody has heard of everybody, for any P: some of them
// twice, which a barrier may. In radix r it tells r-1 ranks, each r^k further on than the last, at
// a time.
//
// Cost: L = ceil(log2 P) rounds, the lower bound; in radix r with r-1 ports log_r P. Hensgen,
// Finkel, Manber, IJPP 1988.
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
#include "sched/collective/hops.h"

namespace sinew::sched {

namespace {

void dissemination_barrier(const Params& params, Builder& b) {
  std::vector<Builder::Message> messages;  // of one weight
  int weight = 1;
  const auto receive = [&] {
    for (const Builder::Message& message : messages) b.receive_reduce(message);
    messages.clear();
  };
  for (const Hop& hop : hops_of(b.world(), params.radix)) {
    if (hop.weight != weight) receive();
    weight = hop.weight;
    for (int rank = 0; rank < b.world(); ++rank) {
      const int to = mod(rank + hop.distance(), b.world());
      messages.push_back(b.post({.chunk = 0, .from = rank, .to = to}));
    }
  }
  receive();
}

Cost dissemination_barrier_cost(const Params& params) {
  return {static_cast<double>(hops_of(params.world, params.radix).size()), 0, 0};
}

}  // namespace

constinit const Algorithm kDisseminationBarrier = {
    .op = Collective::kBarrier,
    .name = "dissemination",
    .formula = "(r-1) log_r P a for P = r^i, else fewer rounds than with the next",
    .source = "Hensgen, Finkel, Manber, IJPP 1988",
    .generator = dissemination_barrier,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = dissemination_barrier_cost,
    .radix = 2,
};

}  // namespace sinew::sched
