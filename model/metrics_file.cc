#include "model/metrics_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/shared_output.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The lines of the first `steps` steps.
std::string lines_until(const std::string& path, std::int64_t steps) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const json document = json::parse(line, nullptr, false);
    if (!document.is_object() || !document.contains("step")) continue;
    if (document["step"].is_number_integer() && document["step"].get<std::int64_t>() <= steps)
      kept += line + "\n";
  }
  return kept;
}

// A JSON number has no NaN or infinity: null.
json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

}  // namespace

MetricsFile::MetricsFile(const std::string& directory, bool writes, std::int64_t steps_done)
    : directory_(writes ? directory : "") {
  if (directory_.empty()) return;
  std::error_code error;
  fs::create_directories(directory_, error);
  const std::string path = directory_ + "/metrics.jsonl";
  if (steps_done > 0 && fs::exists(path)) {
    write_text(path + ".partial", lines_until(path, steps_done));
    fs::rename(path + ".partial", path);
  }
  file_.open(path, steps_done > 0 ? std::ios::app : std::ios::trunc);
  if (!file_) throw Error(fmt::format("'{}' cannot be written: {}", path, std::strerror(errno)));
}

void MetricsFile::write(const StepMetrics& step, std::optional<double> validation_loss) {
  if (directory_.empty()) return;
  json line = {{"step", step.step},
               {"loss", number(step.loss)},
               {"grad_norm", number(step.gradient_norm)},
               {"lr", step.lr},
               {"tokens_per_s", step.tokens_per_s},
               {"step_ms", step.step_ms}};
  if (step.skipped) line["skipped"] = step.note;
  if (validation_loss) line["validation_loss"] = number(*validation_loss);
  file_ << line.dump() << '\n' << std::flush;
  if (!file_)
    throw Error(
        fmt::format("'{}/metrics.jsonl' cannot be written: {}", directory_, std::strerror(errno)));
}

void MetricsFile::write_summary(const TrainPlan& plan, const Summary& summary) {
  if (directory_.empty()) return;
  json rows = json::array();
  for (const Compared& row : summary.compared) {
    json line = {{"name", row.name},
                 {"unit", row.unit},
                 {"predicted", row.predicted},
                 {"measured", row.measured}};
    if (row.predicted != 0) line["relative_error"] = row.measured / row.predicted - 1;
    rows.push_back(std::move(line));
  }
  const TrainOptions& o = plan.options;
  json document = {
      {"model", json::parse(to_json(plan.config))},
      {"parameters", plan.config.parameters()},
      {"layout",
       {{"tp", o.tp},
        {"cp", o.cp},
        {"cp_mode", o.cp_mode},
        {"sequence_parallel", plan.run.sequence_parallel},
        {"row_chunks", plan.run.row_chunks},
        {"pp", o.pp},
        {"dp", o.dp},
        {"zero", o.zero},
        {"shard", plan.run.shards()},
        {"reshard_after", o.reshard_after},
        {"order", plan.grid.order()},
        {"schedule", o.schedule},
        {"microbatches", o.microbatches},
        {"batch", o.batch},
        {"seq", o.seq}}},
      {"dtype", o.dtype},
      {"rounding", o.rounding},
      {"gradients", o.gradients},
      {"device", summary.device},
      {"dropout", o.dropout},
      {"loss", number(summary.loss)},
      {"step_ms_median", summary.step_ms_median},
      {"tokens_per_s", summary.tokens_per_s},
      {"compared", rows},
  };
  if (summary.validation_loss) document["validation_loss"] = number(*summary.validation_loss);
  const std::string path = directory_ + "/summary.json";
  write_text(path + ".partial", document.dump(2) + "\n");
  fs::rename(path + ".partial", path);
}

}  // namespace sinew::model
