// Planner: what a run will need and take on a described machine, and which legal layouts of a given
// number of ranks are best.
//
// Never does: measure (the caller brings rates and latencies, measured or assumed) or decide (it
// ranks). Threads: pure functions.
//
// Model of a step. The computation of a microbatch on a stage is its FLOPs (flops.h, "shapes") over
// the rank's rate; calls of the tensor and context axes and ZeRO's calls per microbatch lengthen F
// and B, nothing of them overlaps; the pipeline is simulated with those durations and its transfers
// overlap; calls once per step and the optimizer follow. Ranks beyond the cores share them:
// computation then takes at least all work over all cores. A call of N ranks and E bytes costs
//   all-reduce                     2 (N-1) alpha + 2 (N-1)/N E beta
//   reduce-scatter and all-gather  half of it
//   message                        alpha + E beta
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sched/plan/run_shape.h"
#include "sched/plan/volume.h"

namespace sinew::sched {

struct LinkCost {
  double latency_s = 0;         // alpha
  double seconds_per_byte = 0;  // beta
};

struct Machine {
  double flops = 1e11;            // per second, of one rank alone
  double memory_per_s = 1e10;     // bytes per second that the optimizer streams at
  int cores = 0;                  // ranks that compute at once; 0 for all
  std::int64_t memory_bytes = 0;  // of one rank; 0 for no limit
  std::array<LinkCost, 4> links;  // by Axis
  [[nodiscard]] const LinkCost& link(Axis axis) const {
    return links[static_cast<std::size_t>(axis)];
  }
};

// Of the rank that needs most and the step as a whole.
struct Prediction {
  StaticBytes static_bytes;
  std::int64_t activation_bytes = 0;  // saved for backward at the peak
  std::int64_t working_bytes = 0;     // run_shape.h
  [[nodiscard]] std::int64_t memory_bytes() const {
    return static_bytes.total() + activation_bytes + working_bytes;
  }

  double step_s = 0;
  double compute_s = 0;          // of the busiest rank, were it never to wait
  double bubble = 0;             // of the pipeline, over its ideal time
  std::array<double, 4> axis_s;  // by Axis: time in its calls, of the busiest rank; pp's overlap
  double sent_bytes = 0;         // of the busiest rank in one step
  // Share of the step in which a rank waits for an axis rather than computes.
  [[nodiscard]] double stall(Axis axis) const {
    return step_s > 0 ? axis_s[static_cast<std::size_t>(axis)] / step_s : 0;
  }
};

[[nodiscard]] double call_seconds(const Traffic& traffic, const LinkCost& link);
// The run must be legal.
[[nodiscard]] Prediction predict(const RunShape& run, const Machine& machine);

struct PlanRequest {
  RunShape run;  // model, batch, time, precision, recompute, order and switches; the rest is what
                 // is searched
  int world = 1;
  std::vector<Zero> zeros = {Zero::kNone, Zero::kOptimizer};
  int cp_max = 1;
  std::vector<int> interleaved_chunks = {2, 4};
};

struct Plan {
  RunShape run;
  Prediction prediction;
  bool fits = true;  // within the machine's memory
};

// Every legal tp x cp x pp x dp of the world, with each schedule and number of microbatches that it
// takes: those that fit first, then by time, then by memory. pp = 1 is listed with 1f1b alone, all
// schedules being the same there. Throws UsageError when none is legal, with the reason the
// plainest one (all ranks data-parallel) is not.
[[nodiscard]] std::vector<Plan> plans(const PlanRequest& request, const Machine& machine);

}  // namespace sinew::sched
