// GPipe: all forwards, then all backwards. Here and in all pictures F = B = W = 1; the undivided
// backward takes B + W.
//
// Drawn: gpipe p 3 v 1 m 4
//
//   rank 0 |F0F1F2F3            B0==B1==B2==B3==|
//   rank 1 |  F0F1F2F3      B0==B1==B2==B3==    |
//   rank 2 |    F0F1F2F3B0==B1==B2==B3==        |
//
// Bubble (p-1)(F+B+W); every rank holds all m microbatches. Backwards run in increasing microbatch
// order, where the paper runs them in decreasing order: same times, same memory, and the order of
// gradient sums is that of all other schedules. Source: Huang et al., GPipe, NeurIPS 2019.
#include "sched/pipeline/algorithms.h"

namespace sinew::sched {

PipeSchedule gpipe(const PipeParams& params) {
  PipeSchedule schedule = empty_schedule("gpipe", params, looping_placement(params.ranks, 1));
  for (int rank = 0; rank < params.ranks; ++rank) {
    for (int i = 0; i < params.microbatches; ++i)
      append(schedule, rank, PipeVerb::kForward, rank, i);
    for (int i = 0; i < params.microbatches; ++i)
      append(schedule, rank, PipeVerb::kBackward, rank, i);
  }
  return schedule;
}

int gpipe_peak_live(const PipeParams& params, int) { return params.microbatches; }

}  // namespace sinew::sched
