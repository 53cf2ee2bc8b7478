// MetricsFile: metrics.jsonl and summary.json in a run's directory.
//
// Threads: one thread. One rank writes; the others have one that writes nothing.
#pragma once

#include <fstream>
#include <string>

#include "model/trainer.h"

namespace sinew::model {

class MetricsFile {
 public:
  // Writes nothing when the directory is empty or `writes` is false. After a resume (steps_done >
  // 0) the lines up to that step stay and later ones, of a run that went on and was killed, go;
  // else the file begins anew. Throws Error when it cannot be written.
  MetricsFile(const std::string& directory, bool writes, std::int64_t steps_done);
  void write(const StepMetrics& step, std::optional<double> validation_loss);
  void write_summary(const TrainPlan& plan, const Summary& summary);

 private:
  std::string directory_;  // empty: nothing is written
  std::ofstream file_;
};

}  // namespace sinew::model
