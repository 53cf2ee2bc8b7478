// make_plan: training options against each other, the model and the ranks. The rules of layouts are
// sched/plan/run_shape.h's; here are those of the numbers and of what this trainer can run.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/runner.h"
#include "model/trainer.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

void require(bool holds, const std::string& message) {
  if (!holds) throw UsageError(message);
}

constexpr std::int64_t kBatchMost = std::int64_t{1} << 30;  // sequences are counted in 31 bits

// What the trainer does not have yet is refused, never ignored.
void check_features(const TrainOptions& o) {
  require(o.zero >= 0 && o.zero <= 3, fmt::format("--zero {}; legal values: 0, 1, 2, 3", o.zero));
  require(o.shard == 0 || o.zero > 0,
          fmt::format("--shard {} with zero 0: nothing is cut; legal: zero 1, 2, 3, or shard 0",
                      o.shard));
  require(o.reshard_after == "forward" || o.reshard_after == "backward",
          fmt::format("--reshard-after '{}'; legal values: forward, backward", o.reshard_after));
  require(o.reshard_after == "forward" || o.zero == 3,
          fmt::format("--reshard-after backward with --zero {}: no weights are gathered; legal: "
                      "--zero 3, or --reshard-after forward",
                      o.zero));
  require(o.dtype == "f32" || o.dtype == "f64" || o.dtype == "bf16",
          fmt::format("--dtype '{}'; legal values: f32, f64, bf16", o.dtype));
  require(o.rounding == "nearest" || o.rounding == "stochastic",
          fmt::format("--rounding '{}'; legal values: nearest, stochastic", o.rounding));
  require(o.rounding == "nearest" || o.dtype == "bf16",
          fmt::format("--rounding stochastic is of bf16 weights, not {}; legal: --dtype bf16, or "
                      "rounding nearest",
                      o.dtype));
  require(o.gradients == "auto" || o.gradients == "bf16",
          fmt::format("--gradients '{}'; legal values: auto, bf16", o.gradients));
  require(o.gradients == "auto" || o.dtype == "bf16",
          fmt::format("--gradients bf16 is of bf16 weights, not {}; legal: --dtype bf16, or "
                      "gradients auto",
                      o.dtype));
  require(o.dropout >= 0 && o.dropout < 1,
          fmt::format("--dropout {}; legal values: 0 to below 1", o.dropout));
  require(o.init.empty() || o.resume.empty(),
          "--init and --resume exclude each other: a checkpoint holds the weights");
}

constexpr sched::Precision kStochasticNarrow = {"bf16-sr-g16", 2, 2, 8};

sched::Precision precision_of(const TrainOptions& o) {
  if (o.dtype == "f64") return sched::kAllF64;
  if (o.dtype == "f32") return sched::kAllF32;
  const bool stochastic = o.rounding == "stochastic";
  if (o.gradients == "bf16") return stochastic ? kStochasticNarrow : sched::kBf16;
  return stochastic ? sched::kBf16Stochastic : sched::kBf16MainGradients;
}

void check_counts(const TrainOptions& o) {
  require(o.batch >= 1 && o.batch <= kBatchMost,
          fmt::format("--batch {}; legal values: 1 to {}", o.batch, kBatchMost));
  require(o.microbatches >= 0 && o.microbatches <= kBatchMost,
          fmt::format("--microbatches {}; legal values: 1 to {}, 0 to choose", o.microbatches,
                      kBatchMost));
  require(o.seq >= 0, fmt::format("--seq {}; legal values: 1 and more, 0 for the model's", o.seq));
  require(o.steps >= 0, fmt::format("--steps {}; legal values: 0 and more", o.steps));
  require(o.warmup >= 0 && o.warmup <= o.steps,
          fmt::format("--warmup {}; legal values: 0 to {}, the steps", o.warmup, o.steps));
  require(o.threads >= 0 && o.threads <= 1024,
          fmt::format("--threads {}; legal values: 1 to 1024, 0 to choose", o.threads));
  require(
      o.save_every >= 0,
      fmt::format("--save-every {}; legal values: 1 and more, 0 for the end only", o.save_every));
  require(o.keep_last >= 0,
          fmt::format("--keep-last {}; legal values: 1 and more, 0 for all", o.keep_last));
  require(
      o.eval_every >= 0,
      fmt::format("--eval-every {}; legal values: 1 and more, 0 for the end only", o.eval_every));
  require(o.eval_windows >= 1,
          fmt::format("--eval-windows {}; legal values: 1 and more", o.eval_windows));
}

// Comparisons with NaN are false, so it passes none of these.
void check_reals(const TrainOptions& o) {
  require(o.lr >= 0 && std::isfinite(o.lr), fmt::format("--lr {}; legal values: 0 and more", o.lr));
  require(o.min_lr <= o.lr,
          fmt::format(
              "--min-lr {} is above --lr {}; legal values: 0 to --lr, negative for a tenth of it",
              o.min_lr, o.lr));
  require(o.beta1 >= 0 && o.beta1 < 1,
          fmt::format("--beta1 {}; legal values: 0 to below 1", o.beta1));
  require(o.beta2 >= 0 && o.beta2 < 1,
          fmt::format("--beta2 {}; legal values: 0 to below 1", o.beta2));
  require(o.eps > 0 && std::isfinite(o.eps), fmt::format("--eps {}; legal values: above 0", o.eps));
  require(o.clip >= 0, fmt::format("--clip {}; legal values: above 0, or 0 for none", o.clip));
  require(o.weight_decay >= 0 && std::isfinite(o.weight_decay),
          fmt::format("--weight-decay {}; legal values: 0 and more", o.weight_decay));
  require(
      o.validation_fraction >= 0 && o.validation_fraction < 1,
      fmt::format("--validation-fraction {}; legal values: 0 to below 1", o.validation_fraction));
}

bool is_in_table(const std::string& schedule) {
  const auto table = sched::pipe_algorithms();
  return std::any_of(table.begin(), table.end(), [&](const sched::PipeAlgorithm& algorithm) {
    return algorithm.name == schedule;
  });
}

// A schedule from a file, proved.
sched::PipeSchedule read_schedule(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    std::string legal;
    for (const sched::PipeAlgorithm& algorithm : sched::pipe_algorithms())
      legal += std::string(algorithm.name) + ", ";
    throw UsageError(fmt::format(
        "--schedule '{}'; legal values: {}or the path of a file that holds one", path, legal));
  }
  std::ifstream file(path);
  if (std::filesystem::is_directory(path)) errno = EISDIR;
  if (!file || std::filesystem::is_directory(path)) {
    throw UsageError(fmt::format("--schedule '{}' cannot be read: {}", path, std::strerror(errno)));
  }
  std::ostringstream text;
  text << file.rdbuf();
  try {
    return sched::load_pipe_schedule(text.str());
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("schedule file '{}': {}", path, error.what()));
  }
}

// Twice as many microbatches as stages keep the bubble below half of the ideal time; without a
// pipeline there is nothing to fill.
std::int64_t choose_microbatches(std::int64_t replica_batch, std::int64_t stages) {
  if (stages == 1) return 1;
  for (std::int64_t m = 2 * stages; m < replica_batch; ++m) {
    if (replica_batch % m == 0) return m;
  }
  return std::max<std::int64_t>(1, replica_batch);
}

}  // namespace

TrainPlan make_plan(const TrainOptions& options, int world) {
  check_features(options);
  check_counts(options);
  check_reals(options);
  TrainPlan plan;
  plan.options = options;
  TrainOptions& o = plan.options;
  if (o.min_lr < 0) o.min_lr = o.lr / 10;
  plan.config = load_config(o.model);
  validate(plan.config);
  plan.grid = sched::make_grid(world, {.tp = o.tp, .cp = o.cp, .pp = o.pp, .dp = o.dp}, o.order);
  o.dp = plan.grid.sizes().dp;
  if (o.seq == 0) o.seq = plan.config.max_time;
  const bool in_table = is_in_table(o.schedule);
  if (!in_table) plan.schedule = read_schedule(o.schedule);
  if (o.chunks == 0)
    o.chunks =
        in_table ? sched::find_pipe_algorithm(o.schedule).default_chunks : plan.schedule.chunks;
  if (o.microbatches == 0 && !in_table) o.microbatches = plan.schedule.microbatches;
  if (o.microbatches == 0) o.microbatches = choose_microbatches(o.batch / o.dp, o.pp);

  plan.run = {.model = shape_of(plan.config),
              .sizes = plan.grid.sizes(),
              .order = o.order,
              .batch = o.batch,
              .time = o.seq,
              .microbatches = static_cast<int>(o.microbatches),
              .schedule = o.schedule,
              .chunks = o.chunks,
              .zero = sched::parse_zero(o.zero),
              .shard = o.shard,
              .reshard_after_forward = o.reshard_after == "forward",
              .sequence_parallel = o.sequence_parallel && o.tp > 1,
              .row_chunks = o.row_chunks,
              .context_mode = sched::parse_context_mode(o.cp_mode),
              .recompute_layers = sched::parse_recompute_list(o.recompute, plan.config.layers),
              .precision = precision_of(o)};
  if (!in_table) plan.run.loaded = plan.schedule;
  sched::validate(plan.run);
  if (in_table)
    plan.schedule =
        sched::generate(sched::find_pipe_algorithm(o.schedule), sched::pipe_params(plan.run));
  require(refuse_to_run(plan.schedule).empty(), refuse_to_run(plan.schedule));
  const sched::PipeVerdict verdict = sched::verify(plan.schedule);
  CHECK(verdict.proved());
  plan.facts = verdict.facts;
  plan.replica_batch = o.batch / o.dp;
  plan.microbatch = {plan.run.microbatch_size(), o.seq};
  return plan;
}

}  // namespace sinew::model
