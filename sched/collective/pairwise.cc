// Pairwise: in each of P-1 rounds the ranks pair up and the two of a pair exchange what they have
// for each other.
//
// The rounds are those of a tournament: in round t ranks i and j of the first P-1 meet when i + j
// is t modulo P-1, and the one that would meet itself meets rank P-1. Every pair meets once. Cost:
// P-1 rounds, (P-1)/P of the vector. An even world, since somebody would be left over. Thakur,
// Rabenseifner, Gropp, IJHPCA 2005, who pair r with r xor t and need a power of two; the tournament
// is Kirkman's, 1847.
//
// Picture: all_to_all pairwise, 4 ranks
//   round 1   0 -c3-> 3  1 -c2-> 2  2 -c1-> 1  3 -c0-> 0
//   round 2   0 -c1-> 1  1 -c0-> 0  2 -c3-> 3  3 -c2-> 2
//   round 3   0 -c2-> 2  1 -c3-> 3  2 -c0-> 0  3 -c1-> 1
//
//   held       rank 0     rank 1     rank 2     rank 3
//   start      0 0 0 0    1 1 1 1    2 2 2 2    3 3 3 3
//   round 1    03 0 0 0   1 12 1 1   2 2 12 2   3 3 3 03
//   round 2    013 0 0 0  1 012 1 1  2 2 123 2  3 3 3 023
//   round 3    * 0 0 0    1 * 1 1    2 2 * 2    3 3 3 *
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

int partner(int rank, int round, int world) {
  const int last = world - 1;
  // 2i = round modulo the odd number P-1: i is half of whichever of round and round + P-1 is even.
  const int single = (round % 2 == 0 ? round : round + last) / 2;
  if (rank == last) return single;
  return rank == single ? last : mod(round - rank, last);
}

void pairwise_all_to_all(const Params&, Builder& b) {
  for (int round = 0; round < b.world() - 1; ++round) {
    std::vector<Relay> relays;
    for (int from = 0; from < b.world(); ++from) {
      const int to = partner(from, round, b.world());
      if (!b.kept(from) && !b.kept(to)) continue;
      relays.push_back(
          {.items = {{{Space::kInput, to}, {Space::kOutput, from}}}, .from = from, .to = to});
    }
    b.exchange(relays);
  }
}

Cost pairwise_cost(const Params& params) {
  return {params.world - 1.0, (params.world - 1.0) / params.world, 0};
}

}  // namespace

constinit const Algorithm kPairwiseAllToAll = {
    .op = Collective::kAllToAll,
    .name = "pairwise",
    .formula = "(P-1)a + (P-1)/P m b, P even",
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
    .generator = pairwise_all_to_all,
    .chunks_of = one_chunk,
    .rule = even_world,
    .closed_form = pairwise_cost,
};

}  // namespace sinew::sched
