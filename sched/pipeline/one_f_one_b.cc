// 1F1B: after a warm-up of min(p-r-1, m) forwards, rank r alternates one forward and one backward,
// then runs the backwards that are left.
//
// Drawn: 1f1b p 3 v 1 m 4
//
//   rank 0 |F0F1F2        B0==F3B1==  B2==  B3==|
//   rank 1 |  F0F1    B0==F2B1==F3B2==  B3==    |
//   rank 2 |    F0B0==F1B1==F2B2==F3B3==        |
//
// Bubble (p-1)(F+B+W), that of GPipe; what it saves is memory: rank r holds min(p-r, m)
// microbatches instead of m. Any m, fewer than p included. Sources: Narayanan et al.,
// Memory-efficient pipeline-parallel DNN training (PipeDream-Flush), ICML 2021; Narayanan et al.,
// Efficient large-scale language model training, SC 2021.
#include <algorithm>

#include "sched/pipeline/algorithms.h"

namespace sinew::sched {

PipeSchedule one_f_one_b(const PipeParams& params) {
  PipeSchedule schedule = empty_schedule("1f1b", params, looping_placement(params.ranks, 1));
  for (int rank = 0; rank < params.ranks; ++rank) {
    const int warmup = std::min(params.ranks - rank - 1, params.microbatches);
    for (int i = 0; i < warmup; ++i) append(schedule, rank, PipeVerb::kForward, rank, i);
    for (int i = 0; i < params.microbatches; ++i) {
      if (i + warmup < params.microbatches)
        append(schedule, rank, PipeVerb::kForward, rank, i + warmup);
      append(schedule, rank, PipeVerb::kBackward, rank, i);
    }
  }
  return schedule;
}

double one_f_one_b_bubble(const PipeParams& params, const PipeTimes&) {
  return static_cast<double>(params.ranks - 1) / params.microbatches;
}

int one_f_one_b_peak_live(const PipeParams& params, int rank) {
  return std::min(params.ranks - rank, params.microbatches);
}

}  // namespace sinew::sched
