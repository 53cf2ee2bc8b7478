// Recursive halving and doubling: the reduce-scatter exchanges half of what is left with ever
// nearer partners (distance Q/2, Q/4, ... 1), the all-gather runs back. Bandwidth-optimal in 2 log2
// Q rounds.
//
// Terms: Q chunks for Q = 2^floor(log2 P) participants (fold.h carries the rest: +2 rounds of the
// whole vector). Reduce-scatter alone: a power of two only, rank r ends with chunk r. Rabenseifner,
// ICCS 2004; Thakur, Rabenseifner, Gropp, IJHPCA 2005.
//
// Picture: all_reduce halving_doubling, 4 ranks
//   round 1   0 -c2..3+-> 2  1 -c2..3+-> 3  2 -c0..1+-> 0  3 -c0..1+-> 1
//   round 2   0 -c1+-> 1  1 -c0+-> 0  2 -c3+-> 3  3 -c2+-> 2
//   round 3   0 -c0-> 1  1 -c1-> 0  2 -c2-> 3  3 -c3-> 2
//   round 4   0 -c0..1-> 2  1 -c0..1-> 3  2 -c2..3-> 0  3 -c2..3-> 1
//
//   held       rank 0     rank 1     rank 2     rank 3
//   start      0 0 0 0    1 1 1 1    2 2 2 2    3 3 3 3
//   round 1    02 02 0 0  13 13 1 1  2 2 02 02  3 3 13 13
//   round 2    * 02 0 0   13 * 1 1   2 2 * 02   3 3 13 *
//   round 3    * * 0 0    * * 1 1    2 2 * *    3 3 * *
//   round 4    * * * *    * * * *    * * * *    * * * *
#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"
#include "sched/collective/fold.h"

namespace sinew::sched {

namespace {

void halve(Builder& b, const Fold& fold) {
  for (int distance = fold.participants() / 2; distance >= 1; distance /= 2) {
    for (int place = 0; place < fold.participants(); ++place) {
      const int partner = place ^ distance;
      b.reduce({.chunk = partner / distance * distance,
                .chunks = distance,
                .from = fold.rank(place),
                .to = fold.rank(partner)});
    }
  }
}

void gather_back(Builder& b, const Fold& fold) {
  for (int distance = 1; distance < fold.participants(); distance *= 2) {
    for (int place = 0; place < fold.participants(); ++place) {
      b.copy({.chunk = place / distance * distance,
              .chunks = distance,
              .from = fold.rank(place),
              .to = fold.rank(place ^ distance)});
    }
  }
}

int halving_doubling_chunks(const Params& params) { return 1 << floor_log2(params.world); }

void halving_reduce_scatter(const Params&, Builder& b) { halve(b, Fold(b.world())); }

void halving_doubling_all_reduce(const Params&, Builder& b) {
  const Fold fold(b.world());
  fold.reduce_in(b);
  halve(b, fold);
  gather_back(b, fold);
  fold.copy_out(b);
}

Cost halving_reduce_scatter_cost(const Params& params) {
  const double share = (params.world - 1.0) / params.world;
  return {static_cast<double>(ceil_log2(params.world)), share, share};
}

Cost halving_doubling_all_reduce_cost(const Params& params) {
  const double levels = floor_log2(params.world);
  const double participants = 1 << floor_log2(params.world);
  const double share = (participants - 1) / participants;
  const double extra = is_power_of_two(params.world) ? 0 : 1;
  return {2 * levels + 2 * extra, 2 * share + 2 * extra, share + extra};
}

}  // namespace

constinit const Algorithm kHalvingDoublingAllReduce = {
    .op = Collective::kAllReduce,
    .name = "halving_doubling",
    .formula = "2L a + 2(Q-1)/Q m b + (Q-1)/Q m g; else 2 rounds of m more, L of Q",
    .source = "Rabenseifner, ICCS 2004",
    .generator = halving_doubling_all_reduce,
    .chunks_of = halving_doubling_chunks,
    .rule = any_world,
    .closed_form = halving_doubling_all_reduce_cost,
};

constinit const Algorithm kHalvingReduceScatter = {
    .op = Collective::kReduceScatter,
    .name = "halving",
    .formula = "L a + (P-1)/P m (b + g), P = 2^i",
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
    .generator = halving_reduce_scatter,
    .chunks_of = one_chunk,
    .rule = power_of_two,
    .closed_form = halving_reduce_scatter_cost,
};

}  // namespace sinew::sched
