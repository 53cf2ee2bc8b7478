#include "model/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/gemm.h"
#include "sched/base/error.h"

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

double calls(const comm::Communicator* group, sched::Collective op) {
  if (group == nullptr) return 0;
  return static_cast<double>(group->counters().collective[static_cast<std::size_t>(op)].calls);
}

double sent(const comm::Communicator* group, sched::Collective op) {
  if (group == nullptr) return 0;
  return static_cast<double>(group->counters().collective[static_cast<std::size_t>(op)].sent_bytes);
}

// FLOPs of one token, forward and backward: 6 N + 6 L C T, N without the position table; causal
// attention counted once (llm.c's convention).
double flops_per_token(const TrainPlan& plan) {
  const auto n =
      static_cast<double>(plan.config.parameters() - plan.config.max_time * plan.config.channels);
  return 6 * n +
         6.0 * static_cast<double>(plan.config.layers * plan.config.channels * plan.options.seq);
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

template <typename T>
std::vector<Compared> compare(const TrainPlan& plan, const Stage<T>& stage, Parallel& parallel,
                              const Memory& memory, int peak_live, std::int64_t steps,
                              double step_s) {
  constexpr double kSize = sizeof(T);
  const TrainOptions& o = plan.options;
  const auto count = static_cast<double>(stage.count());
  const double shard = o.zero == 1 ? count / o.dp : count;
  const BlockShape block(plan.config, plan.microbatch.batch, plan.microbatch.time, o.tp);
  const auto boundary = static_cast<double>(stage.boundary_count());
  const auto layers = static_cast<double>(stage.shape().layers);
  const int pipeline_rank = parallel.coordinates().pp;
  const int live =
      sched::find_pipe_algorithm(o.schedule)
          .peak_live({.ranks = o.pp, .chunks = 1, .microbatches = static_cast<int>(o.microbatches)},
                     pipeline_rank);
  const double heads = stage.shape().has_head ? 1 : 0;
  const double per_microbatch =
      layers * (static_cast<double>(BlockSaved<T>::count(block)) + boundary) + boundary +
      heads * boundary;

  std::vector<Compared> rows;
  rows.push_back(
      {"parameters", "bytes", count * kSize, static_cast<double>(memory.parameters.size_bytes())});
  rows.push_back(
      {"gradients", "bytes", count * kSize, static_cast<double>(memory.gradients.size_bytes())});
  rows.push_back({"optimizer state", "bytes", 2 * shard * kSize,
                  static_cast<double>(memory.optimizer.size_bytes())});
  rows.push_back({"activations", "bytes", live * per_microbatch * kSize,
                  static_cast<double>(memory.activations.size_bytes())});
  rows.push_back(
      {"peak live microbatches", "", static_cast<double>(live), static_cast<double>(peak_live)});

  using sched::Collective;
  const double m = static_cast<double>(o.microbatches * steps);
  if (parallel.tensor() != nullptr && steps > 0) {
    // Two forward and two backward a layer; the embedding's one forward; the head's one backward;
    // the loss's maximum and two sums; one of the norm's sums a step.
    const double ends = (stage.shape().has_embedding ? 1 : 0) + heads * 4;
    rows.push_back({"tensor all-reduces", "calls",
                    m * (4 * layers + ends) + static_cast<double>(steps),
                    calls(parallel.tensor(), Collective::kAllReduce)});
  }
  if (parallel.data() != nullptr && steps > 0) {
    const double dp = o.dp;
    const double full = count * kSize * static_cast<double>(steps) * (dp - 1) / dp;
    if (o.zero == 1) {
      rows.push_back({"gradient reduce-scatter", "bytes sent", full,
                      sent(parallel.data(), Collective::kReduceScatter)});
      rows.push_back(
          {"weight all-gather", "bytes sent", full, sent(parallel.data(), Collective::kAllGather)});
    }
  }
  const double peak = measured_peak<T>(parallel);
  const double flops = flops_per_token(plan) * static_cast<double>(o.batch * o.seq);
  const double ranks = parallel.grid().world();
  if (step_s > 0) {
    const double p = o.pp;
    const double ideal =
        flops / (peak * ranks) * (1 + (p - 1) / static_cast<double>(o.microbatches));
    rows.push_back({"step time (compute and bubble at GEMM peak)", "s", ideal, step_s});
    rows.push_back({"utilisation (6N+6LCT over measured GEMM peak of all ranks)", "", 1,
                    flops / step_s / (peak * ranks)});
  }
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
                                              const Memory&, int, std::int64_t, double);
template std::vector<Compared> compare<double>(const TrainPlan&, const Stage<double>&, Parallel&,
                                               const Memory&, int, std::int64_t, double);

}  // namespace sinew::model
