#include "model/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "comm/wait.h"
#include "kernels/elementwise.h"
#include "model/agree.h"
#include "model/checkpoint.h"
#include "model/checkpoint_writer.h"
#include "model/data.h"
#include "model/device.h"
#include "model/device_step.h"
#include "model/dropout_mask.h"
#include "model/gather.h"
#include "model/initialize.h"
#include "model/metrics_file.h"
#include "model/partial.h"
#include "model/report.h"
#include "model/runner.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

using Clock = std::chrono::steady_clock;

// Steps between comparisons of the tied copies: rare enough to cost nothing, often enough to find a
// drift before a run is lost.
constexpr std::int64_t kTiedCheckSteps = 64;

kernels::Threads start_threads(const ThreadPlan& plan, std::unique_ptr<kernels::ThreadPool>& pool,
                               kernels::Accelerator* accelerator) {
  if (plan.count > 1) pool = std::make_unique<kernels::ThreadPool>(plan.count, plan.cores);
  return {.count = plan.count, .pool = pool.get(), .accelerator = accelerator};
}

// Collective where there is a device: its doors decide where messages lie.
Memory open_memory(Parallel& parallel, const TrainDevice& device) {
  if (device.accelerator == nullptr) return Memory();
  parallel.open_doors(device.open_door);
  const bool sends = parallel.pipeline() != nullptr && parallel.pipeline()->sends_from_device();
  return Memory(device.accelerator, sends ? device.accelerator : nullptr);
}

StageParts stage_parts(const TrainPlan& plan, int pipeline_rank) {
  const std::vector<sched::Recompute> kinds = plan.run.recompute_kinds();
  StageParts parts{.stages = {},
                   .recompute = kinds,
                   .held = sched::held_at_most(plan.schedule, pipeline_rank, kinds)};
  for (const int stage : sched::stages_of(plan.schedule, pipeline_rank))
    parts.stages.push_back(stage_shape(plan.config, plan.schedule.stages(), stage));
  return parts;
}

// The rank that finds a plan's fault: of those with a first piece of the batch, which has a target,
// the one whose slice of the tensor is the last.
bool finds_fault(const Parallel& parallel) {
  return parallel.data_rank() == 0 && parallel.coordinates().tp + 1 == parallel.grid().sizes().tp;
}

// A resumed run sees the sequences that the run before it would have seen next.
void require_same_order(const std::string& directory, const CheckpointPaths& paths,
                        const DataOrder& saved, const DataOrder& found) {
  if (saved.training_windows == 0 || saved == found) return;
  const std::string anew =
      fmt::format("or --init {} for a new run that begins with its weights", paths.model);
  if (saved.tokens != found.tokens || saved.fingerprint != found.fingerprint) {
    throw UsageError(fmt::format(
        "checkpoint '{}' was trained on other data ({} tokens, here are {}); legal: its data, {}",
        directory, saved.tokens, found.tokens, anew));
  }
  if (saved.time != found.time) {
    throw UsageError(fmt::format(
        "--seq {}: checkpoint '{}' was trained on sequences of {} tokens, which the order of its "
        "data depends on; legal: --seq {}, {}",
        found.time, directory, saved.time, saved.time, anew));
  }
  throw UsageError(fmt::format(
      "--validation-fraction leaves {} sequences for training: checkpoint '{}' had {}, which the "
      "order of its data depends on; legal: the fraction it had, {}",
      found.training_windows, directory, saved.training_windows, anew));
}

template <typename T>
class TrainerOf final : public Trainer {
 public:
  TrainerOf(const TrainPlan& plan, comm::Communicator& world, std::unique_ptr<Tokens> tokens,
            const TrainDevice& device)
      : plan_(plan),
        device_(device.name),
        threads_(
            start_threads(plan_threads(plan.options.threads, world), pool_, device.accelerator)),
        parallel_(world, plan.grid,
                  {.first = plan.schedule.rank_of(0),
                   .last = plan.schedule.rank_of(plan.schedule.stages() - 1)},
                  key_value_copies(plan.config, plan.options.tp), plan.options.shard),
        memory_(open_memory(parallel_, device)),
        stage_(plan.config, stage_parts(plan, parallel_.coordinates().pp),
               {parallel_.coordinates().tp, plan.options.tp, plan.run.sequence_parallel,
                plan.run.row_chunks},
               parallel_.tensor(), plan.microbatch,
               {.zero = plan.run.zero,
                .data = parallel_.shard(),
                .groups = parallel_.shard_groups(),
                .narrow_gradients = plan.options.gradients == "bf16",
                .keeps_gathered = plan.run.keeps_gathered(),
                .fault = finds_fault(parallel_) ? plan.fault : ""},
               threads_, memory_,
               {.context = parallel_.context(),
                .context_mode = plan.run.context_mode,
                .dropout = plan.options.dropout,
                .seed = plan.options.seed}),
        runner_(plan_.schedule, plan_.facts.credits, stage_, parallel_, memory_),
        optimizer_(stage_, parallel_, optimizer_options(plan.options), parameter_names(plan.config),
                   threads_, memory_),
        writer_(stage_, optimizer_, parallel_),
        rate_{plan.options.lr, plan.options.min_lr, plan.options.warmup, plan.options.steps},
        tokens_(std::move(tokens)) {
    const TrainOptions& o = plan_.options;
    CHECK(device.accelerator == nullptr || refuse_on_device(plan_).empty());
    if (device.accelerator != nullptr) open_device_step(*device.accelerator);
    if (!o.data.empty()) open_data();
    if (!o.resume.empty()) {
      resume(o.resume);
    } else if (!o.init.empty()) {
      agree(world, [&] { load_weights(o.init, plan_.config, stage_, optimizer_); });
    } else {
      initialize_weights(o.seed, stage_, optimizer_, threads_);
    }
  }

  std::int64_t steps_done() const override { return step_; }

  StepMetrics step() override {
    CHECK(dataset_ != nullptr);
    const auto begin = Clock::now();
    const std::int64_t time = plan_.options.seq;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(plan_.replica_batch * time));
    std::vector<std::int32_t> targets(tokens.size());
    const std::int64_t first = sequences_ + plan_.replica_batch * parallel_.coordinates().dp;
    read_data([&] {
      for (std::int64_t i = 0; i < plan_.replica_batch; ++i)
        dataset_->training(first + i, tokens.data() + i * time, targets.data() + i * time);
    });
    return run_step(std::move(tokens), std::move(targets), begin);
  }

  StepMetrics step_on(const std::int32_t* tokens, const std::int32_t* targets) override {
    const std::int64_t count = plan_.replica_batch * plan_.options.seq;
    const std::int64_t begin = count * parallel_.coordinates().dp;
    return run_step({tokens + begin, tokens + begin + count},
                    {targets + begin, targets + begin + count}, Clock::now());
  }

  std::optional<double> validate() override;
  void save(const std::string& directory) override {
    check_tied_copies();
    TrainingState state;
    state.step = step_;
    state.optimizer_steps = optimizer_.steps_taken();
    state.sequences = sequences_;
    state.seed = plan_.options.seed;
    state.config = plan_.config;
    state.dtype = plan_.options.dtype;
    if (dataset_ != nullptr) state.data = dataset_->order();
    if (plan_.options.async_save) {
      writer_.start(directory, state, plan_.options.keep_last);
    } else {
      save_checkpoint(directory, state, stage_, optimizer_, parallel_, plan_.options.keep_last);
    }
  }
  void finish_save() override { writer_.finish(); }
  sched::Timeline timeline() override;
  Summary summary() override;

  void close() override { parallel_.close_doors(); }

  Tensors gather_weights() override {
    return gather<T>(plan_.config, stage_, optimizer_, parallel_, Array::kWeights);
  }
  Tensors gather_gradients() override {
    return gather<T>(plan_.config, stage_, optimizer_, parallel_, Array::kGradients);
  }

 private:
  static OptimizerOptions optimizer_options(const TrainOptions& o) {
    return {.beta1 = o.beta1,
            .beta2 = o.beta2,
            .epsilon = o.eps,
            .weight_decay = o.weight_decay,
            .clip = o.clip,
            .zero = o.zero,
            .stochastic = o.rounding == "stochastic",
            .seed = o.seed,
            .offload = o.offload};
  }

  // Of this rank's positions.
  std::vector<Microbatch> microbatches(std::span<const std::int32_t> tokens,
                                       std::span<const std::int32_t> targets) const {
    const std::int64_t size = plan_.microbatch.batch * plan_.microbatch.time / plan_.options.cp;
    std::vector<Microbatch> list;
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(tokens.size()); at += size) {
      const bool last = at + size == static_cast<std::int64_t>(tokens.size());
      const std::int64_t index = at / size;
      list.push_back(
          {tokens.data() + at, targets.data() + at, last,
           plan_.replica_batch * parallel_.coordinates().dp + index * plan_.microbatch.batch});
    }
    return list;
  }

  // Leaves of whole sequences, [sequences, T], the positions of this rank, [sequences, T / cp].
  void keep_own_positions(std::vector<std::int32_t>& values) const {
    const int cp = plan_.options.cp;
    if (cp == 1) return;
    const std::int64_t time = plan_.options.seq;
    const auto pieces =
        sched::sequence_pieces(plan_.run.context_mode, time, cp, parallel_.coordinates().cp);
    std::vector<std::int32_t> kept;
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(values.size()); row += time) {
      for (const sched::SequencePiece& piece : pieces) {
        for (std::int64_t i = 0; i < piece.count; ++i)
          kept.push_back(values[static_cast<std::size_t>(row + piece.first + i * piece.stride)]);
      }
    }
    values = std::move(kept);
  }

  void open_data();
  // Runs `read`, which copies from the data; where a token may be none of the model's, all ranks
  // learn of it.
  template <typename Read>
  void read_data(Read&& read);
  // Whole sequences of this replica.
  StepMetrics run_step(std::vector<std::int32_t> tokens, std::vector<std::int32_t> targets,
                       Clock::time_point begin);
  void open_device_step(kernels::Accelerator& accelerator);
  // Forward, backward and update of the rank's microbatches.
  StepReport take_step(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                       kernels::Wide<T> scale, std::span<double> losses);
  StepReport take_step_on_device(std::span<const std::int32_t> tokens,
                                 std::span<const std::int32_t> targets, float scale,
                                 std::span<double> losses);
  // Positions with a target, over all replicas.
  std::int64_t count_targets(const std::vector<std::int32_t>& targets);
  // Sum over all replicas of the last stages' losses, in the order of the batch, the same bits on
  // all ranks.
  double sum_losses(const std::vector<double>& losses);
  // Waits for the device, so that the host may use its memory. Throws when a collective on it
  // failed.
  void wait_for_device() {
    kernels::synchronize(threads_);
    parallel_.check_doors();
  }
  void resume(const std::string& directory);
  // Throws Error on every rank unless the two copies of the tied table hold the same bits.
  void check_tied_copies();

  TrainPlan plan_;
  std::string device_;
  std::unique_ptr<kernels::ThreadPool> pool_;
  kernels::Threads threads_;
  Parallel parallel_;
  Memory memory_;
  Stage<T> stage_;
  Runner<T> runner_;
  Optimizer<T> optimizer_;
  CheckpointWriter<T> writer_;
  LearningRate rate_;
  std::unique_ptr<DeviceStep> device_step_;
  Traffic recorded_;  // by a step that is repeated
  std::unique_ptr<Tokens> tokens_;
  std::unique_ptr<Dataset> dataset_;
  std::int64_t step_ = 0;
  std::int64_t sequences_ = 0;
  double last_loss_ = 0;
  std::optional<double> last_validation_loss_;
  std::vector<double> step_seconds_;
  Traffic traffic_;
};

template <typename T>
void TrainerOf<T>::open_data() {
  const TrainOptions& o = plan_.options;
  if (tokens_ == nullptr) {
    tokens_ = std::make_unique<Tokens>(parallel_.world(), o.data,
                                       DataReading{o.data_format, o.tokenizer});
  }
  agree(parallel_.world(), [&] {
    dataset_ = std::make_unique<Dataset>(*tokens_, o.seq, plan_.config.vocabulary, o.seed,
                                         o.validation_fraction);
  });
}

template <typename T>
template <typename Read>
void TrainerOf<T>::read_data(Read&& read) {
  if (tokens_->token_limit() <= plan_.config.vocabulary) {
    read();
  } else {
    agree(parallel_.world(), read);
  }
}

template <typename T>
StepMetrics TrainerOf<T>::run_step(std::vector<std::int32_t> tokens,
                                   std::vector<std::int32_t> targets, Clock::time_point begin) {
  keep_own_positions(tokens);
  keep_own_positions(targets);
  traffic_.add_counters(parallel_, -1);
  const std::int64_t count = count_targets(targets);
  const auto scale =
      static_cast<kernels::Wide<T>>(count > 0 ? 1.0 / static_cast<double>(count) : 0.0);
  std::vector<double> losses(static_cast<std::size_t>(plan_.schedule.microbatches), 0.0);
  StepMetrics metrics;
  metrics.lr = rate_.at(step_);
  StepReport report;
  if (device_step_ != nullptr) {
    report = take_step_on_device(tokens, targets, static_cast<float>(scale), losses);
  } else {
    report = take_step(tokens, targets, scale, losses);
  }
  traffic_.add_counters(parallel_, +1);
  const double total = sum_losses(losses);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  ++step_;
  sequences_ += plan_.options.batch;
  step_seconds_.push_back(seconds);
  last_loss_ = count > 0 ? total / static_cast<double>(count) : 0;
  metrics.step = step_;
  metrics.loss = last_loss_;
  metrics.gradient_norm = report.gradient_norm;
  metrics.step_ms = seconds * 1e3;
  metrics.tokens_per_s = static_cast<double>(plan_.options.batch * plan_.options.seq) / seconds;
  metrics.skipped = report.skipped;
  if (report.skipped) {
    metrics.note =
        fmt::format("step skipped: the gradient of {} is not finite ({})", report.bad_tensor,
                    report.bad_rank < 0 ? "the sum over ranks overflowed"
                                        : fmt::format("rank {}", report.bad_rank));
  }
  if (step_ % kTiedCheckSteps == 0) check_tied_copies();
  writer_.poll();
  return metrics;
}

template <typename T>
StepReport TrainerOf<T>::take_step(std::span<const std::int32_t> tokens,
                                   std::span<const std::int32_t> targets, kernels::Wide<T> scale,
                                   std::span<double> losses) {
  stage_.set_step(step_);
  stage_.zero_gradients();
  runner_.train(microbatches(tokens, targets), scale, losses);
  optimizer_.reduce_gradients();
  return optimizer_.step(rate_.at(step_));
}

template <typename T>
void TrainerOf<T>::open_device_step(kernels::Accelerator& accelerator) {
  agree(parallel_.world(), [&] {
    if (plan_.options.graph && parallel_.pipeline() != nullptr &&
        !parallel_.pipeline()->sends_from_device())
      throw UsageError(
          "--graph with a pipeline whose ranks cannot map each other's memory: the host passes its "
          "messages on; legal: without --graph, --pp 1");
  });
  const std::int64_t tokens = plan_.replica_batch * plan_.options.seq / plan_.options.cp;
  device_step_ = std::make_unique<DeviceStep>(
      accelerator,
      DeviceStep::Sizes{.microbatches = plan_.schedule.microbatches,
                        .tensors = static_cast<std::int64_t>(parameter_names(plan_.config).size()),
                        .parameters = static_cast<std::int64_t>(stage_.parameters().size()),
                        .positions = tokens,
                        .packed = partial_most(stage_.flat(), stage_.units().owned())},
      plan_.options.graph ? Queueing::kGraph : Queueing::kPlain);
  optimizer_.use(*device_step_);
}

// The device is idle before and after.
template <typename T>
StepReport TrainerOf<T>::take_step_on_device(std::span<const std::int32_t> tokens,
                                             std::span<const std::int32_t> targets, float scale,
                                             std::span<double> losses) {
  DeviceStep& device = *device_step_;
  std::copy(tokens.begin(), tokens.end(), device.tokens().begin());
  std::copy(targets.begin(), targets.end(), device.targets().begin());
  std::vector<Microbatch> list = microbatches(device.tokens(), device.targets());
  for (std::size_t i = 0; i < list.size(); ++i) list[i].loss = &device.losses()[i];
  device.update().loss_scale = scale;
  device.update().dropout_stream = DropoutMask::streams_before(step_);
  optimizer_.tell(rate_.at(step_));
  Traffic queued;
  const DeviceStep::Taken taken = device.take([&] {
    queued.add_counters(parallel_, -1);
    stage_.zero_gradients();
    runner_.train(list, scale, losses);
    optimizer_.reduce_gradients();
    optimizer_.queue_step();
    queued.add_counters(parallel_, +1);
  });
  wait_for_device();
  if (taken == DeviceStep::Taken::kRecorded) recorded_ = queued;
  if (taken == DeviceStep::Taken::kReplayed) traffic_ += recorded_;
  std::copy(device.losses().begin(), device.losses().end(), losses.begin());
  return optimizer_.report();
}

template <typename T>
std::int64_t TrainerOf<T>::count_targets(const std::vector<std::int32_t>& targets) {
  std::int64_t count =
      std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
  sum_over(parallel_.data(), &count, 1, DType::kI64);
  return count;
}

template <typename T>
double TrainerOf<T>::sum_losses(const std::vector<double>& losses) {
  std::vector<double> all(losses.size() * static_cast<std::size_t>(parallel_.data_world()), 0.0);
  if (parallel_.last_stage() && parallel_.coordinates().tp == 0) {
    std::copy(losses.begin(), losses.end(),
              all.begin() + static_cast<std::ptrdiff_t>(losses.size()) * parallel_.data_rank());
  }
  sum_over(&parallel_.world(), all.data(), static_cast<std::int64_t>(all.size()));
  double total = 0;
  for (const double loss : all) total += loss;
  return total;
}

template <typename T>
std::optional<double> TrainerOf<T>::validate() {
  if (dataset_ == nullptr || dataset_->validation_windows() == 0) return std::nullopt;
  const std::int64_t windows = std::min(plan_.options.eval_windows, dataset_->validation_windows());
  const std::int64_t time = plan_.options.seq;
  const std::int64_t group = plan_.microbatch.batch * plan_.options.dp;
  const std::int64_t rounds = (windows + group - 1) / group;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(rounds * plan_.microbatch.batch * time),
                                   0);
  std::vector<std::int32_t> targets(tokens.size(), -1);  // windows past the last one have no loss
  read_data([&] {
    for (std::int64_t i = 0; i < rounds * plan_.microbatch.batch; ++i) {
      const std::int64_t window = i * plan_.options.dp + parallel_.coordinates().dp;
      if (window < windows)
        dataset_->validation(window, tokens.data() + i * time, targets.data() + i * time);
    }
  });
  keep_own_positions(tokens);
  keep_own_positions(targets);
  const std::vector<Microbatch> list = microbatches(tokens, targets);
  std::vector<double> losses(list.size(), 0.0);
  runner_.evaluate(list, losses);
  wait_for_device();
  const std::int64_t count = count_targets(targets);
  last_validation_loss_ = sum_losses(losses) / static_cast<double>(count);
  return last_validation_loss_;
}

template <typename T>
void TrainerOf<T>::resume(const std::string& directory) {
  Checkpoint opened;
  const CheckpointPaths& paths = opened.paths;
  const TrainingState& state = opened.state;
  agree(parallel_.world(), [&] {
    opened = open_checkpoint(directory, CheckpointUse::kResume);
    Config named = state.config;
    named.name = plan_.config.name;
    if (named != plan_.config) {
      throw UsageError(fmt::format("checkpoint '{}' holds model {}, not {}", directory,
                                   to_json(state.config), to_json(plan_.config)));
    }
    if (state.seed != plan_.options.seed) {
      throw UsageError(fmt::format("checkpoint '{}' was made with seed {}, not {}", directory,
                                   state.seed, plan_.options.seed));
    }
    if (dataset_ != nullptr) require_same_order(directory, paths, state.data, dataset_->order());
  });
  load_checkpoint(paths, state, stage_, optimizer_, parallel_);
  optimizer_.set_steps_taken(state.optimizer_steps);
  step_ = state.step;
  sequences_ = state.sequences;
}

template <typename T>
void TrainerOf<T>::check_tied_copies() {
  if (parallel_.pipeline() == nullptr || !plan_.config.tied) return;
  std::int32_t differ = 0;
  if (parallel_.tie() != nullptr) {
    const std::uint64_t mine = stage_.tied_fingerprint();
    std::uint64_t both[2];
    parallel_.tie()->all_gather(&mine, both, 1, DType::kI64);
    differ = both[0] != both[1] ? 1 : 0;
  }
  max_over(&parallel_.world(), &differ, 1, DType::kI32);
  if (differ != 0)
    throw Error(
        fmt::format("after step {} the first and the last stage's copies of the tied token "
                    "table differ",
                    step_));
}

template <typename T>
sched::Timeline TrainerOf<T>::timeline() {
  return gather_timeline(plan_, runner_.spans(), parallel_);
}

template <typename T>
Summary TrainerOf<T>::summary() {
  Summary summary;
  summary.device = device_;
  summary.loss = last_loss_;
  summary.validation_loss = last_validation_loss_;
  std::vector<double> sorted = step_seconds_;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted.empty() ? 0 : sorted[sorted.size() / 2];
  summary.step_ms_median = median * 1e3;
  summary.tokens_per_s =
      median > 0 ? static_cast<double>(plan_.options.batch * plan_.options.seq) / median : 0;
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) /
                      std::max<double>(1, static_cast<double>(sorted.size()));
  const Measured measured{.steps = static_cast<std::int64_t>(step_seconds_.size()),
                          .step_s = median,
                          .mean_s = mean,
                          .peak_live = runner_.peak_live(),
                          .traffic = traffic_};
  summary.compared = compare<T>(plan_, stage_, parallel_, memory_, measured, threads_);
  return summary;
}

}  // namespace

ThreadPlan plan_threads(int wanted, const comm::Communicator& world) {
  const std::vector<int>& cores = world.own_cores();
  const int own = static_cast<int>(cores.size());
  ThreadPlan plan{.count = wanted > 0 ? wanted : own, .cores = {}};
  if (plan.count > 1 && plan.count <= own)
    plan.cores.assign(cores.begin(), cores.begin() + plan.count);
  return plan;
}

std::unique_ptr<Trainer> Trainer::create(const TrainPlan& plan, comm::Communicator& world,
                                         std::unique_ptr<Tokens> tokens,
                                         const TrainDevice* device) {
  const TrainDevice on = device != nullptr ? *device : TrainDevice{};
  if (plan.options.dtype == "f64")
    return std::make_unique<TrainerOf<double>>(plan, world, std::move(tokens), on);
  if (plan.options.dtype == "bf16")
    return std::make_unique<TrainerOf<bf16>>(plan, world, std::move(tokens), on);
  return std::make_unique<TrainerOf<float>>(plan, world, std::move(tokens), on);
}

Summary run_training(
    Trainer& trainer, const TrainPlan& plan, comm::Communicator& world,
    const std::function<void(const StepMetrics&, std::optional<double>)>& on_step) {
  const TrainOptions& o = plan.options;
  if (!o.out.empty() && world.rank() == 0) remove_unfinished(o.out);
  const bool trains = trainer.steps_done() < o.steps;
  MetricsFile metrics(o.out, world.rank() == 0, trainer.steps_done());
  while (trainer.steps_done() < o.steps) {
    const StepMetrics step = trainer.step();
    const bool last = step.step == o.steps;
    const bool evaluates = last || (o.eval_every > 0 && step.step % o.eval_every == 0);
    const std::optional<double> validation = evaluates ? trainer.validate() : std::nullopt;
    metrics.write(step, validation);
    on_step(step, validation);
    if (!o.out.empty() && (last || (o.save_every > 0 && step.step % o.save_every == 0)))
      trainer.save(o.out);
  }
  trainer.finish_save();
  if (!trains) static_cast<void>(trainer.validate());  // the end is where it begins
  const Summary summary = trainer.summary();
  if (trains) metrics.write_summary(plan, summary);  // what was found before stays otherwise
  return summary;
}

}  // namespace sinew::model
