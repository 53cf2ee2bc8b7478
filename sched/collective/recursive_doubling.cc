// Recursive doubling: in round k rank r exchanges all it has with rank r xor 2^k.
//
// All-reduce: Q = 2^floor(log2 P) ranks take part; each of the other P - Q first gives its vector
// to a neighbour and gets the result from it at the end. log2 Q rounds of the whole vector (+2 when
// P != Q). Both ends of an exchange combine the same two partial results, so all ranks hold the
// same bits. All-gather: the ranges double; log2 P rounds, (P-1)/P of the vector; a power of two
// only. Thakur, Rabenseifner, Gropp, IJHPCA 2005.
//
// Picture: all_reduce recursive_doubling, 4 ranks
//   round 1   0 -c0+-> 1  1 -c0+-> 0  2 -c0+-> 3  3 -c0+-> 2
//   round 2   0 -c0+-> 2  1 -c0+-> 3  2 -c0+-> 0  3 -c0+-> 1
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0        1        2        3
//   round 1    01       01       23       23
//   round 2    *        *        *        *
//
// Picture: all_gather recursive_doubling, 4 ranks
//   round 1   0 -c0-> 1  1 -c1-> 0  2 -c2-> 3  3 -c3-> 2
//   round 2   0 -c0..1-> 2  1 -c0..1-> 3  2 -c2..3-> 0  3 -c2..3-> 1
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 . . .  . 1 . .  . . 2 .  . . . 3
//   round 1    0 1 . .  0 1 . .  . . 2 3  . . 2 3
//   round 2    0 1 2 3  0 1 2 3  0 1 2 3  0 1 2 3
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"
#include "sched/collective/fold.h"

namespace sinew::sched {

namespace {

void recursive_doubling_all_reduce(const Params&, Builder& b) {
  const Fold fold(b.world());
  fold.reduce_in(b);
  for (int distance = 1; distance < fold.participants(); distance *= 2) {
    std::vector<Builder::Message> messages;
    for (int place = 0; place < fold.participants(); ++place) {
      messages.push_back(b.post({.chunk = 0,
                                 .chunks = b.chunks(),
                                 .from = fold.rank(place),
                                 .to = fold.rank(place ^ distance)}));
    }
    for (const Builder::Message& message : messages) b.receive_reduce(message);
  }
  fold.copy_out(b);
}

void recursive_doubling_all_gather(const Params&, Builder& b) {
  for (int distance = 1; distance < b.world(); distance *= 2) {
    for (int rank = 0; rank < b.world(); ++rank) {
      b.copy({.chunk = rank / distance * distance,
              .chunks = distance,
              .from = rank,
              .to = rank ^ distance});
    }
  }
}

Cost recursive_doubling_all_reduce_cost(const Params& params) {
  const double levels = floor_log2(params.world);
  const double extra = is_power_of_two(params.world) ? 0 : 1;
  return {levels + 2 * extra, levels + 2 * extra, levels + extra};
}

Cost recursive_doubling_all_gather_cost(const Params& params) {
  return {static_cast<double>(ceil_log2(params.world)), (params.world - 1.0) / params.world, 0};
}

Cost recursive_doubling_barrier_cost(const Params& params) {
  return {recursive_doubling_all_reduce_cost(params).rounds, 0, 0};
}

}  // namespace

constinit const Algorithm kRecursiveDoublingAllReduce = {
    .op = Collective::kAllReduce,
    .name = "recursive_doubling",
    .formula = "L(a + m b + m g); else 2 rounds of m more, L of Q",
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
    .generator = recursive_doubling_all_reduce,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = recursive_doubling_all_reduce_cost,
};

constinit const Algorithm kRecursiveDoublingAllGather = {
    .op = Collective::kAllGather,
    .name = "recursive_doubling",
    .formula = "L a + (P-1)/P m b, P = 2^i",
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
    .generator = recursive_doubling_all_gather,
    .chunks_of = one_chunk,
    .rule = power_of_two,
    .closed_form = recursive_doubling_all_gather_cost,
};

constinit const Algorithm kRecursiveDoublingBarrier = {
    .op = Collective::kBarrier,
    .name = "recursive_doubling",
    .formula = "L a; else 2 rounds more, L of Q",
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
    .generator = recursive_doubling_all_reduce,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = recursive_doubling_barrier_cost,
};

}  // namespace sinew::sched
