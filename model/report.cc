#include "model/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/gemm.h"
#include "model/optimizer.h"
#include "sched/base/error.h"
#include "sched/plan/flops.h"
#include "sched/plan/run_shape.h"
#include "sched/plan/volume.h"

namespace sinew::model {

namespace {

using nlohmann::json;

// A span as numbers, so that it can be gathered: kind, microbatch, begin, end.
struct PackedSpan {
  double is_forward;
  double microbatch;
  double begin_s;
  double end_s;
};
static_assert(sizeof(PackedSpan) == 32);

// Multiply-adds per second of one rank while all ranks compute: the peak that utilisation is
// measured against.
template <typename T>
double measured_peak(Parallel& parallel) {
  constexpr std::int64_t kSize = 512;
  std::vector<T> a(kSize * kSize, T{1});
  std::vector<T> b(kSize * kSize, T{1});
  std::vector<T> c(kSize * kSize);
  const kernels::GemmShape shape{
      .m = kSize, .n = kSize, .k = kSize, .a_stride = kSize, .b_stride = kSize, .c_stride = kSize};
  double best = 0;
  parallel.world().barrier();
  for (int i = 0; i < 6; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    kernels::gemm<T>(shape, T{1}, a.data(), b.data(), T{0}, c.data());
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds);
  }
  parallel.world().barrier();
  return best;
}

// The run as the formulas of sched/plan take it.
template <typename T>
sched::RunShape run_shape(const TrainPlan& plan) {
  const TrainOptions& o = plan.options;
  const Config& c = plan.config;
  sched::RunShape run;
  run.model = sched::gpt2_shape(c.name, c.layers, c.heads, c.channels, c.vocabulary, c.max_time);
  run.sizes = plan.grid.sizes();
  run.order = plan.grid.order();
  run.batch = o.batch;
  run.time = o.seq;
  run.microbatches = static_cast<int>(o.microbatches);
  run.schedule = o.schedule;
  run.zero = sched::parse_zero(o.zero);
  run.precision = sizeof(T) == 8 ? sched::kAllF64 : sched::kAllF32;
  return run;
}

struct AxisRow {
  const char* name;
  AxisTraffic counted;
  AxisTraffic predicted;
};

// The traffic of `steps` steps by formula: sched/plan's, plus the sums over a group that it leaves
// out, those of the gradient norm and of the number of targets.
template <typename T>
std::vector<AxisRow> traffic_rows(const TrainPlan& plan, Parallel& parallel,
                                  const Measured& measured) {
  const sched::PerAxis at = parallel.coordinates();
  AxisRow tensor{"tensor", measured.traffic.tensor, {}};
  AxisRow pipeline{"pipeline messages", measured.traffic.pipeline, {}};
  AxisRow tie{"tied table", measured.traffic.tie, {}};
  AxisRow data{"data", measured.traffic.data, {}};
  for (const sched::Traffic& t :
       sched::traffic_of(run_shape<T>(plan), plan.schedule, at.pp, at.tp)) {
    AxisRow& row = t.axis == sched::Axis::kTp              ? tensor
                   : t.axis == sched::Axis::kDp            ? data
                   : t.pattern == sched::Pattern::kMessage ? pipeline
                                                           : tie;
    row.predicted.calls += t.calls * measured.steps;
    row.predicted.payload_bytes += t.calls * t.elements * t.element_bytes * measured.steps;
  }
  const std::int64_t norm_bytes =
      static_cast<std::int64_t>(
          stage_parameters(plan.config, {0, plan.config.layers, true, true}, {}).size()) *
      8;
  const auto also = [&](AxisRow& row, std::int64_t bytes) {
    row.predicted.calls += measured.steps;
    row.predicted.payload_bytes += bytes * measured.steps;
  };
  std::vector<AxisRow> rows;
  if (parallel.tensor() != nullptr) {
    also(tensor, norm_bytes);
    rows.push_back(tensor);
  }
  if (parallel.pipeline() != nullptr) rows.push_back(pipeline);
  if (parallel.tie() != nullptr) rows.push_back(tie);
  if (parallel.data() != nullptr) {
    also(data, 8);
    if (plan.options.zero != 0) also(data, norm_bytes);
    rows.push_back(data);
  }
  return rows;
}

}  // namespace

sched::Timeline gather_timeline(const TrainPlan& plan, const std::vector<sched::Span>& own,
                                Parallel& parallel) {
  sched::Timeline timeline;
  timeline.title = fmt::format("{} of one step, measured", plan.schedule.name);
  if (parallel.pipeline() == nullptr) {
    timeline.spans = own;
    return timeline;
  }
  const std::size_t per_rank = 2 * static_cast<std::size_t>(plan.schedule.microbatches);
  std::vector<PackedSpan> mine(per_rank, PackedSpan{});
  for (std::size_t i = 0; i < std::min(per_rank, own.size()); ++i) {
    mine[i] = {own[i].label[0] == 'F' ? 1.0 : 0.0, std::stod(own[i].label.substr(1)),
               own[i].begin_s, own[i].end_s};
  }
  std::vector<PackedSpan> all(per_rank * static_cast<std::size_t>(plan.schedule.ranks));
  parallel.pipeline()->all_gather(mine.data(), all.data(), static_cast<std::int64_t>(per_rank) * 4,
                                  DType::kF64);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].end_s <= all[i].begin_s) continue;
    timeline.spans.push_back({.row = static_cast<int>(i / per_rank),
                              .lane = 0,
                              .label = fmt::format("{}{}", all[i].is_forward > 0 ? 'F' : 'B',
                                                   static_cast<int>(all[i].microbatch)),
                              .begin_s = all[i].begin_s,
                              .end_s = all[i].end_s});
  }
  return timeline;
}

void TrafficCount::add(const Parallel& parallel, int sign) {
  const auto add_counter = [sign](AxisTraffic& axis, const comm::Counter& counter) {
    axis.calls += sign * counter.calls;
    axis.payload_bytes += sign * counter.payload_bytes;
  };
  const auto add_collectives = [&](AxisTraffic& axis, const comm::Communicator* group) {
    if (group == nullptr) return;
    for (const comm::Counter& counter : group->counters().collective) add_counter(axis, counter);
  };
  add_collectives(tensor, parallel.tensor());
  add_collectives(tie, parallel.tie());
  add_collectives(data, parallel.data());
  if (parallel.pipeline() != nullptr) add_counter(pipeline, parallel.pipeline()->counters().send);
}

template <typename T>
std::vector<Compared> compare(const TrainPlan& plan, const Stage<T>& stage, Parallel& parallel,
                              const Memory& memory, const Measured& measured) {
  const TrainOptions& o = plan.options;
  const sched::PerAxis at = parallel.coordinates();
  const sched::RunShape run = run_shape<T>(plan);
  const sched::ModelPart part = sched::part_of(run, plan.schedule, at.pp, at.tp);
  const std::int64_t padded =
      padded_count(sched::parameter_count(run.model, part), Optimizer<T>::multiple(o.zero, o.dp));
  const sched::StaticBytes bytes =
      sched::static_bytes(padded, run.zero, run.precision, o.dp, at.dp);
  const int live = sched::find_pipe_algorithm(o.schedule).peak_live(sched::pipe_params(run), at.pp);
  const sched::ActivationShape activation{
      .batch = plan.microbatch.batch, .time = plan.microbatch.time, .tp = o.tp};
  const std::int64_t boundary_bytes = stage.boundary_count() * static_cast<std::int64_t>(sizeof(T));
  // Beside its layers a microbatch keeps the last one's output and, on the last stage, the gradient
  // of it.
  const std::int64_t per_microbatch = part.layers * sched::saved_bytes(sched::layer_saved_tensors(
                                                        run.model, activation, sizeof(T))) +
                                      (part.has_head ? 2 : 1) * boundary_bytes;

  std::vector<Compared> rows;
  const auto add = [&](std::string name, std::string unit, auto predicted, auto found) {
    rows.push_back({std::move(name), std::move(unit), static_cast<double>(predicted),
                    static_cast<double>(found)});
  };
  add("parameters", "bytes", bytes.parameters, memory.parameters.size_bytes());
  add("gradients", "bytes", bytes.gradients, memory.gradients.size_bytes());
  add("optimizer state", "bytes", bytes.optimizer, memory.optimizer.size_bytes());
  add("activations", "bytes", live * per_microbatch, memory.activations.size_bytes());
  if (measured.steps == 0) return rows;
  add("peak live microbatches", "", live, measured.peak_live);
  for (const AxisRow& row : traffic_rows<T>(plan, parallel, measured)) {
    add(fmt::format("{}, calls", row.name), "", row.predicted.calls, row.counted.calls);
    add(fmt::format("{}, payload", row.name), "bytes", row.predicted.payload_bytes,
        row.counted.payload_bytes);
  }
  const double peak = measured_peak<T>(parallel) * parallel.grid().world();
  const sched::FlopsConvention& convention = sched::find_flops_convention("llm.c");
  const double tokens = static_cast<double>(o.batch * o.seq);
  const double bubble = sched::find_pipe_algorithm(o.schedule).bubble(sched::pipe_params(run), {});
  const double ideal = convention.per_token(run.model, run.time) * tokens / peak * (1 + bubble);
  add("step: operations at GEMM's rate, and bubble", "s", ideal, measured.step_s);
  add(fmt::format("utilisation ({}: {}; peak measured with GEMM on all ranks)", convention.name,
                  convention.formula),
      "", 1 / (1 + bubble),
      sched::utilisation(convention, run.model, run.time,
                         {.tokens = tokens, .seconds = measured.step_s, .peak_flops = peak}));
  return rows;
}

MetricsFile::MetricsFile(const std::string& directory, bool writes, std::int64_t steps_done)
    : directory_(writes ? directory : "") {
  if (directory_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  file_.open(directory_ + "/metrics.jsonl", steps_done > 0 ? std::ios::app : std::ios::trunc);
  if (!file_) throw Error(fmt::format("'{}/metrics.jsonl' cannot be written", directory_));
}

void MetricsFile::write(const StepMetrics& step, double validation_loss) {
  if (directory_.empty()) return;
  json line = {{"step", step.step},
               {"loss", step.loss},
               {"grad_norm", step.gradient_norm},
               {"lr", step.lr},
               {"tokens_per_s", step.tokens_per_s},
               {"step_ms", step.step_ms}};
  if (step.skipped) line["skipped"] = step.note;
  if (validation_loss >= 0) line["validation_loss"] = validation_loss;
  file_ << line.dump() << '\n' << std::flush;
}

void MetricsFile::write_summary(const TrainPlan& plan, const Summary& summary) {
  if (directory_.empty()) return;
  json rows = json::array();
  for (const Compared& row : summary.compared) {
    const double error = row.predicted != 0 ? row.measured / row.predicted - 1 : 0;
    rows.push_back({{"name", row.name},
                    {"unit", row.unit},
                    {"predicted", row.predicted},
                    {"measured", row.measured},
                    {"relative_error", error}});
  }
  const TrainOptions& o = plan.options;
  json document = {
      {"model", json::parse(to_json(plan.config))},
      {"parameters", plan.config.parameters()},
      {"layout",
       {{"tp", o.tp},
        {"cp", o.cp},
        {"pp", o.pp},
        {"dp", o.dp},
        {"zero", o.zero},
        {"order", plan.grid.order()},
        {"schedule", o.schedule},
        {"microbatches", o.microbatches},
        {"batch", o.batch},
        {"seq", o.seq}}},
      {"dtype", o.dtype},
      {"loss", summary.loss},
      {"step_ms_median", summary.step_ms_median},
      {"tokens_per_s", summary.tokens_per_s},
      {"compared", rows},
  };
  if (summary.validation_loss >= 0) document["validation_loss"] = summary.validation_loss;
  std::ofstream file(directory_ + "/summary.json.partial", std::ios::trunc);
  file << document.dump(2) << '\n';
  file.close();
  if (!file) throw Error(fmt::format("'{}/summary.json' cannot be written", directory_));
  std::filesystem::rename(directory_ + "/summary.json.partial", directory_ + "/summary.json");
}

template std::vector<Compared> compare<float>(const TrainPlan&, const Stage<float>&, Parallel&,
                                              const Memory&, const Measured&);
template std::vector<Compared> compare<double>(const TrainPlan&, const Stage<double>&, Parallel&,
                                               const Memory&, const Measured&);

}  // namespace sinew::model
