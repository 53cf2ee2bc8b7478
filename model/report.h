// Report: what a run says about itself: predictions beside measurements, and its timeline.
//
// Never does: write files (metrics_file.h does). Threads: one rank, one thread.
#pragma once

#include <vector>

#include "model/optimizer.h"
#include "model/parallel.h"
#include "model/stage.h"
#include "model/traffic.h"
#include "model/trainer.h"
#include "sched/timeline.h"

namespace sinew::model {

// Spans of all ranks of this rank's pipeline, from 0 on. Collective over the pipeline.
[[nodiscard]] sched::Timeline gather_timeline(const TrainPlan& plan,
                                              const std::vector<sched::Span>& own,
                                              Parallel& parallel);

struct Measured {
  std::int64_t steps = 0;
  double step_s = 0;  // median
  double mean_s = 0;
  int peak_live = 0;
  Traffic traffic;  // of all steps
};

// This rank's formulas (sched/plan) against what its arenas, runner and communicators counted.
// Collective over the world (the peak rate is measured on all ranks at once).
template <typename T>
[[nodiscard]] std::vector<Compared> compare(const TrainPlan& plan, const Stage<T>& stage,
                                            Parallel& parallel, const Memory& memory,
                                            const Measured& measured, kernels::Threads threads);

}  // namespace sinew::model
