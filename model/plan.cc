// make_plan: training options against the model and the ranks.
#include <fmt/format.h>

#include <algorithm>

#include "model/trainer.h"
#include "sched/base/error.h"
#include "sched/base/text.h"

namespace sinew::model {

namespace {

std::string divisors(std::int64_t value, std::int64_t most) {
  std::string text;
  for (std::int64_t i = 1; i <= std::min(value, most); ++i) {
    if (value % i == 0) text += (text.empty() ? "" : ", ") + std::to_string(i);
  }
  return text;
}

void require(bool holds, const std::string& message) {
  if (!holds) throw UsageError(message);
}

void check_numbers(const TrainOptions& o) {
  require(
      o.cp == 1,
      fmt::format("cp {}: context parallelism is not part of this build; legal values: 1", o.cp));
  require(o.zero == 0 || o.zero == 1, fmt::format("zero {}; legal values: 0, 1", o.zero));
  require(o.dtype == "f32" || o.dtype == "f64",
          fmt::format("dtype '{}'; legal values: f32, f64", o.dtype));
  require(o.dropout == 0, fmt::format("dropout {}; legal values: 0", o.dropout));
  require(o.recompute == "none", fmt::format("recompute '{}'; legal values: none", o.recompute));
  require(o.batch >= 1, fmt::format("batch {}; legal values: 1 and more", o.batch));
  require(o.microbatches >= 0,
          fmt::format("microbatches {}; legal values: 1 and more, 0 to choose", o.microbatches));
  require(o.steps >= 0, fmt::format("steps {}; legal values: 0 and more", o.steps));
  require(o.lr >= 0, fmt::format("lr {}; legal values: 0 and more", o.lr));
  require(o.min_lr <= o.lr,
          fmt::format("min_lr {} is above lr {}; legal values: 0 to lr", o.min_lr, o.lr));
  require(o.warmup >= 0, fmt::format("warmup {}; legal values: 0 and more", o.warmup));
  require(o.beta1 >= 0 && o.beta1 < 1,
          fmt::format("beta1 {}; legal values: 0 to below 1", o.beta1));
  require(o.beta2 >= 0 && o.beta2 < 1,
          fmt::format("beta2 {}; legal values: 0 to below 1", o.beta2));
  require(o.eps > 0, fmt::format("eps {}; legal values: above 0", o.eps));
  require(o.clip >= 0, fmt::format("clip {}; legal values: above 0, or 0 for none", o.clip));
  require(o.weight_decay >= 0,
          fmt::format("weight_decay {}; legal values: 0 and more", o.weight_decay));
  require(o.threads >= 0 && o.threads <= 1024,
          fmt::format("threads {}; legal values: 1 to 1024, 0 to choose", o.threads));
  require(o.validation_fraction >= 0 && o.validation_fraction < 1,
          fmt::format("validation_fraction {}; legal values: 0 to below 1", o.validation_fraction));
  require(o.save_every >= 0 && o.eval_every >= 0 && o.eval_windows >= 1,
          "save_every and eval_every must be 0 or more, eval_windows 1 or more");
  require(o.init.empty() || o.resume.empty(),
          "init and resume exclude each other: a checkpoint holds the weights");
}

void check_model(const Config& config, const sched::Grid& grid) {
  const std::int64_t tp = grid.sizes().tp;
  const std::int64_t pp = grid.sizes().pp;
  require(config.heads % tp == 0,
          fmt::format("tp {} does not divide the model's {} heads; legal values: {}", tp,
                      config.heads, divisors(config.heads, config.heads)));
  require(config.vocabulary >= tp,
          fmt::format("tp {} exceeds the vocabulary of {}", tp, config.vocabulary));
  require(pp <= config.layers,
          fmt::format("pp {} exceeds the model's {} layers; legal values: 1 to {}", pp,
                      config.layers, config.layers));
}

// Twice as many microbatches as stages keep the bubble below a third of the time; one is enough
// without a pipeline.
std::int64_t choose_microbatches(std::int64_t replica_batch, std::int64_t stages) {
  if (stages == 1) return 1;
  for (std::int64_t m = 2 * stages; m < replica_batch; ++m) {
    if (replica_batch % m == 0) return m;
  }
  return replica_batch;
}

}  // namespace

TrainPlan make_plan(const TrainOptions& options, int world) {
  check_numbers(options);
  TrainPlan plan;
  plan.options = options;
  TrainOptions& o = plan.options;
  if (o.min_lr < 0) o.min_lr = o.lr / 10;
  plan.config = load_config(o.model);
  validate(plan.config);
  plan.grid = sched::make_grid(world, {.tp = o.tp, .cp = o.cp, .pp = o.pp, .dp = o.dp}, o.order);
  o.dp = plan.grid.sizes().dp;
  check_model(plan.config, plan.grid);

  if (o.seq == 0) o.seq = plan.config.max_time;
  require(o.seq >= 1 && o.seq <= plan.config.max_time,
          fmt::format("seq {}; legal values: 1 to the model's max_time {}", o.seq,
                      plan.config.max_time));
  require(o.batch % o.dp == 0,
          fmt::format("batch {} is not a multiple of dp {}; legal values: {}, {}, {}, ...", o.batch,
                      o.dp, o.dp, 2 * o.dp, 3 * o.dp));
  plan.replica_batch = o.batch / o.dp;
  if (o.microbatches == 0) o.microbatches = choose_microbatches(plan.replica_batch, o.pp);
  require(plan.replica_batch % o.microbatches == 0,
          fmt::format("microbatches {} do not divide the {} sequences of a replica (batch {} / dp "
                      "{}); legal values: {}",
                      o.microbatches, plan.replica_batch, o.batch, o.dp,
                      divisors(plan.replica_batch, plan.replica_batch)));
  plan.microbatch = {plan.replica_batch / o.microbatches, o.seq};
  const sched::PipeParams params{
      .ranks = o.pp, .chunks = 1, .microbatches = static_cast<int>(o.microbatches)};
  plan.schedule = sched::generate(sched::find_pipe_algorithm(o.schedule), params);
  require(plan.schedule.chunks == 1 && !sched::splits_backward(plan.schedule),
          fmt::format("schedule '{}' needs several chunks per rank or a split backward; legal "
                      "values: gpipe, 1f1b",
                      o.schedule));
  return plan;
}

}  // namespace sinew::model
