// Neighbour exchange: an all-gather in which every rank only ever talks to its two neighbours, in
// turn with one and the other, and from the second round on passes on two blocks at a time.
//
// Terms: ranks 2i and 2i+1 exchange their blocks and then hold pair i. In every later round a rank
// exchanges the pair that it got last, with its other neighbour than the round before. Cost: P/2
// rounds and (P-1)/P of the vector. An even world. Chen, Yang, Yan, Guo, ISPA 2005.
//
// Picture: all_gather neighbour_exchange, 4 ranks
//   round 1   0 -c0-> 1  1 -c1-> 0  2 -c2-> 3  3 -c3-> 2
//   round 2   0 -c0..1-> 3  1 -c0..1-> 2  2 -c2..3-> 1  3 -c2..3-> 0
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 . . .  . 1 . .  . . 2 .  . . . 3
//   round 1    0 1 . .  0 1 . .  . . 2 3  . . 2 3
//   round 2    0 1 2 3  0 1 2 3  0 1 2 3  0 1 2 3
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

void neighbour_exchange_all_gather(const Params&, Builder& b) {
  const int world = b.world();
  if (world == 1) return;
  for (int rank = 0; rank < world; ++rank)
    b.copy({.chunk = rank, .from = rank, .to = rank % 2 == 0 ? rank + 1 : rank - 1});
  std::vector<int> last(static_cast<std::size_t>(world));  // the pair that a rank got last
  for (int rank = 0; rank < world; ++rank) last[static_cast<std::size_t>(rank)] = rank / 2;
  for (int round = 1; round < world / 2; ++round) {
    std::vector<int> next = last;
    for (int rank = 0; rank < world; ++rank) {
      const bool to_left = (rank % 2 == 0) == (round % 2 == 1);
      const int to = mod(to_left ? rank - 1 : rank + 1, world);
      const int pair = last[static_cast<std::size_t>(rank)];
      b.copy({.chunk = 2 * pair, .chunks = 2, .from = rank, .to = to});
      next[static_cast<std::size_t>(to)] = pair;
    }
    last = next;
  }
}

Cost neighbour_exchange_cost(const Params& params) {
  const int rounds = params.world / 2;
  return {static_cast<double>(rounds), (params.world - 1.0) / params.world, 0};
}

}  // namespace

constinit const Algorithm kNeighbourExchangeAllGather = {
    .op = Collective::kAllGather,
    .name = "neighbour_exchange",
    .formula = "P/2 a + (P-1)/P m b, P even",
    .source = "Chen, Yang, Yan, Guo, ISPA 2005",
    .generator = neighbour_exchange_all_gather,
    .chunks_of = one_chunk,
    .rule = even_world,
    .closed_form = neighbour_exchange_cost,
};

}  // namespace sinew::sched
