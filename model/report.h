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

// This rank's formulas against what its arenas and communicators counted over `steps` steps of
// `step_s` seconds. Collective over the world (the peak rate is measured on all ranks at once).
template <typename T>
[[nodiscard]] std::vector<Compared> compare(const TrainPlan& plan, const Stage<T>& stage,
                                            Parallel& parallel, const Memory& memory, int peak_live,
                                            std::int64_t steps, double step_s);

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
