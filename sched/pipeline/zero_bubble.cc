// ZB-H1 and ZB-H2: 1F1B with the backward split into B (input gradient), which the stage before
// waits for, and W (weight gradient), which nobody waits for. W moves into the gaps.
//
// Rank r warms up with d(p-r-1) forwards and runs the W of a microbatch after the B of the one d r
// later, with d = 1 for H1 and d = 2 for H2.
//
// Drawn: zb-h1 p 3 v 1 m 4
//
//   rank 0 |F0F1F2    B0W0F3B1W1B2W2B3W3|
//   rank 1 |  F0F1  B0F2B1W0F3B2W1B3W2W3|
//   rank 2 |    F0B0F1B1F2B2W0F3B3W1W2W3|
//
// Drawn: zb-h2 p 3 v 1 m 6
//
//   rank 0 |F0F1F2F3F4B0W0F5B1W1B2W2B3W3B4W4B5W5    |
//   rank 1 |  F0F1F2B0F3B1F4B2W0F5B3W1B4W2B5W3W4W5  |
//   rank 2 |    F0B0F1B1F2B2F3B3F4B4W0F5B5W1W2W3W4W5|
//
// Every rank holds up to d(p-1)+1 microbatches, until their W: for H1 what 1F1B holds on rank 0,
// for H2 nearly twice that. Bubble of a rank's busy time, with k = min(m, d(p-1)+1), w = min(F, W):
//
//   (p-1)(F+B) - (k-1) w
//
// which for W <= F is (p-1)(F+B-W) for H1 from m = p on, (p-1)(F+B-2W) for H2 from m = 2p-1 on. For
// H2 it is exact for 2w <= F+B; w = (F+B)/2 bounds it beyond.
//
// H2's ranks begin and end one after the other (a parallelogram): its makespan is longer than the
// busy time by up to p-1 forwards, which overlap with the neighbouring steps when the optimizer
// step of a stage does not wait for others. Any m. Source: Qi et al., Zero bubble pipeline
// parallelism, ICLR 2024, section 2.
#include <algorithm>

#include "sched/pipeline/algorithms.h"

namespace sinew::sched {

namespace {

PipeSchedule zero_bubble(std::string_view name, const PipeParams& params, int depth) {
  PipeSchedule schedule = empty_schedule(name, params, looping_placement(params.ranks, 1));
  const int m = params.microbatches;
  for (int rank = 0; rank < params.ranks; ++rank) {
    const int warmup = std::min(depth * (params.ranks - rank - 1), m);
    const int delay = std::min(depth * rank, m);
    for (int i = 0; i < warmup; ++i) append(schedule, rank, PipeVerb::kForward, rank, i);
    for (int i = 0; i < m; ++i) {
      if (i + warmup < m) append(schedule, rank, PipeVerb::kForward, rank, i + warmup);
      append(schedule, rank, PipeVerb::kBackward, rank, i);
      if (i >= delay) append(schedule, rank, PipeVerb::kWeight, rank, i - delay);
    }
    for (int i = m - delay; i < m; ++i) append(schedule, rank, PipeVerb::kWeight, rank, i);
  }
  return schedule;
}

int most_live(const PipeParams& params, int depth) {
  return std::min(depth * (params.ranks - 1) + 1, params.microbatches);
}

double zero_bubble_bubble(const PipeParams& params, const PipeTimes& times, int depth) {
  const double fill = (params.ranks - 1) * (times.forward + times.backward);
  double gap = std::min(times.forward, times.weight);
  if (depth == 2) gap = std::min(gap, (times.forward + times.backward) / 2);
  const double filled = (most_live(params, depth) - 1) * gap;
  return (fill - filled) / (params.microbatches * (times.forward + times.backward + times.weight));
}

}  // namespace

PipeSchedule zb_h1(const PipeParams& params) { return zero_bubble("zb-h1", params, 1); }
PipeSchedule zb_h2(const PipeParams& params) { return zero_bubble("zb-h2", params, 2); }

double zb_h1_bubble(const PipeParams& params, const PipeTimes& times) {
  return zero_bubble_bubble(params, times, 1);
}
double zb_h2_bubble(const PipeParams& params, const PipeTimes& times) {
  return zero_bubble_bubble(params, times, 2);
}

bool zb_h2_exact(const PipeParams&, const PipeTimes& times) {
  return 2 * std::min(times.forward, times.weight) <= times.forward + times.backward;
}

int zb_h1_peak_live(const PipeParams& params, int) { return most_live(params, 1); }
int zb_h2_peak_live(const PipeParams& params, int) { return most_live(params, 2); }

}  // namespace sinew::sched
