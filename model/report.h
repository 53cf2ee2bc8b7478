// Report: what a run says about itself: predictions beside measurements, the timeline, metrics
// files.
//
// Threads: one rank, one thread.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "model/parallel.h"
#include "model/stage.h"
#include "model/trainer.h"
#include "sched/timeline.h"

namespace sinew::model {

// Spans of all ranks of this rank's pipeline. Collective over the pipeline.
[[nodiscard]] sched::Timeline gather_timeline(const TrainPlan& plan,
                                              const std::vector<sched::Span>& own,
                                              Parallel& parallel);

// What a rank's communicators counted in its training steps, evaluation and set-up left out.
struct AxisTraffic {
  std::int64_t calls = 0;          // collectives and messages sent
  std::int64_t payload_bytes = 0;  // of the calls' full arrays; of messages, their size
};
struct TrafficCount {
  AxisTraffic tensor;
  AxisTraffic pipeline;  // messages to the neighbours
  AxisTraffic tie;
  AxisTraffic data;
  void add(const Parallel& parallel, int sign);  // + or - the communicators' counters as they stand
};

struct Measured {
  int peak_live = 0;
  std::int64_t steps = 0;
  double step_s = 0;  // median
  TrafficCount traffic;
};

// This rank's formulas (sched/plan) against what its arenas, runner and communicators counted.
// Collective over the world (the peak rate is measured on all ranks at once).
template <typename T>
[[nodiscard]] std::vector<Compared> compare(const TrainPlan& plan, const Stage<T>& stage,
                                            Parallel& parallel, const Memory& memory,
                                            const Measured& measured);

// metrics.jsonl and summary.json in a directory; writes nothing when the directory is empty or
// `writes` is false.
class MetricsFile {
 public:
  // With steps already done the file is continued, else begun anew.
  MetricsFile(const std::string& directory, bool writes, std::int64_t steps_done);
  void write(const StepMetrics& step, double validation_loss);
  void write_summary(const TrainPlan& plan, const Summary& summary);

 private:
  std::string directory_;
  std::ofstream file_;
};

}  // namespace sinew::model
