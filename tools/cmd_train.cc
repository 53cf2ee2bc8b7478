// train: one training run over all ranks, with its progress, its timeline and predicted beside
// measured.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

#include "model/data.h"
#include "model/trainer.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "sched/timeline.h"
#include "tools/command.h"
#include "tools/device.h"
#include "tools/escape.h"
#include "tools/launcher.h"
#include "tools/machine.h"
#include "tools/run_folder.h"
#include "tools/selection.h"
#include "tools/session.h"
#include "tools/table.h"
#include "tools/train_memory.h"
#include "tools/train_options.h"

namespace sinew::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  model::TrainOptions train;
  std::int64_t log_every = 0;
  std::string device = "cpu";
  std::string transport = "auto";
  std::string selection;
  double timeout_s = 60;
};

// A NaN is shown without its sign, which means nothing.
double unsigned_nan(double value) { return std::isnan(value) ? NAN : value; }

std::string with_unit(double value, const std::string& unit) {
  if (unit.starts_with("bytes")) {
    return format_bytes(static_cast<std::int64_t>(value)) +
           unit.substr(std::string("bytes").size());
  }
  if (unit == "s") return format_seconds(value);
  if (unit == "calls") return counted(static_cast<std::int64_t>(value), "call");
  const std::string number =
      value == std::floor(value) ? fmt::format("{:.0f}", value) : three_digits(value);
  return unit.empty() ? number : number + " " + unit;
}

void print_header(const model::TrainPlan& plan, const comm::Communicator& world,
                  const std::string& device) {
  const model::TrainOptions& o = plan.options;
  const model::Config& config = plan.config;
  fmt::print("model {}: {}, {}, {}{}, {}, vocabulary {}, {}, {}\n", escaped(config.name),
             config.is_llama() ? "Llama" : "GPT-2", counted(config.layers, "layer"),
             counted(config.heads, "head"),
             config.is_llama() ? fmt::format(" on {}", config.key_value_heads()) : "",
             counted(config.channels, "channel"), config.vocabulary,
             counted(config.parameters(), "parameter"),
             o.dtype + (o.gradients == "auto" ? "" : " with gradients in " + o.gradients));
  fmt::print("device: {}\n", device);
  fmt::print("{} over {}: tp {}{} x cp {}{} x pp {} x dp {}, order {}, zero {}{}{}\n",
             counted(world.world(), "rank"), world.transport_name(), o.tp,
             !plan.run.sequence_parallel ? ""
             : o.row_chunks == 1
                 ? " with sequence parallelism"
                 : fmt::format(" with sequence parallelism in {} chunks", o.row_chunks),
             o.cp, o.cp > 1 ? " " + o.cp_mode : "", o.pp, o.dp, plan.grid.order(), o.zero,
             o.shard > 0 ? fmt::format(" over groups of {}", o.shard) : "",
             plan.run.keeps_gathered() ? ", weights kept for backward" : "");
  fmt::print("step: batch {} x {}, schedule {} with {} of {}; lr {:g} to {:g}, warm-up {}\n",
             o.batch, counted(o.seq, "token"), o.schedule,
             counted(o.microbatches, "microbatch", "microbatches"), plan.microbatch.batch, o.lr,
             o.min_lr, o.warmup);
  const model::ThreadPlan threads = model::plan_threads(o.threads, world);
  fmt::print("threads: {} a rank{}\n\n", threads.count,
             threads.cores.empty()
                 ? ""
                 : fmt::format(", rank 0's on cores {}", fmt::join(threads.cores, ", ")));
}

// The first rank's progress lines.
class Progress {
 public:
  Progress(const model::TrainPlan& plan, std::int64_t log_every, std::int64_t steps_done)
      : steps_(plan.options.steps),
        every_(log_every > 0 ? log_every : std::max<std::int64_t>(1, steps_ / 20)),
        first_(steps_done),
        tokens_of_step_(static_cast<double>(plan.options.batch * plan.options.seq)),
        begin_(Clock::now()) {}

  void add(const model::StepMetrics& step, std::optional<double> validation_loss, bool shown) {
    skipped_last_ = step.skipped;
    ++unsaid_;
    unsaid_ms_ += step.step_ms;
    const Clock::time_point now = Clock::now();
    const bool due = step.step == first_ + 1 || step.step == steps_ || step.step % every_ == 0 ||
                     now - said_ > kSilenceMax;
    if (!shown || (!due && !validation_loss && !step.skipped)) return;
    said_ = now;
    show(step, validation_loss);
    unsaid_ = 0;
    unsaid_ms_ = 0;
  }

  // Whether the last step changed nothing because it was not finite.
  [[nodiscard]] bool skipped_last() const { return skipped_last_; }

 private:
  static constexpr std::chrono::seconds kSilenceMax{10};

  void show(const model::StepMetrics& step, std::optional<double> validation_loss) const {
    const double taken_s = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double left_s =
        taken_s / static_cast<double>(step.step - first_) * static_cast<double>(steps_ - step.step);
    fmt::print(
        "step {:>5}/{}  loss {:.4f}  norm {:>7.3f}  lr {:.2e}  {:>7.0f} tokens/s  {:>6.0f} "
        "ms{}{}\n",
        step.step, steps_, unsigned_nan(step.loss), unsigned_nan(step.gradient_norm), step.lr,
        tokens_of_step_ * unsaid_ / unsaid_ms_ * 1e3, unsaid_ms_ / unsaid_,
        step.step < steps_ ? "  left " + format_seconds(left_s) : "",
        validation_loss ? fmt::format("  validation loss {:.4f}", unsigned_nan(*validation_loss))
                        : "");
    if (step.skipped) fmt::print("  {}\n", step.note);
    std::fflush(stdout);
  }

  std::int64_t steps_;
  std::int64_t every_;
  std::int64_t first_;
  double tokens_of_step_;
  double unsaid_ = 0;  // steps since the last line, which speaks of all of them
  double unsaid_ms_ = 0;
  Clock::time_point begin_;
  Clock::time_point said_ = begin_;
  bool skipped_last_ = false;
};

void print_summary(const model::Summary& summary) {
  const bool trained = summary.tokens_per_s > 0;
  if (trained || summary.validation_loss) fmt::print("\n");
  if (summary.validation_loss)
    fmt::print("validation loss {:.4f} nats per token\n", unsigned_nan(*summary.validation_loss));
  if (trained) {
    fmt::print("median step {:.0f} ms, {:.0f} tokens/s\n", summary.step_ms_median,
               summary.tokens_per_s);
  }
  fmt::print("\n");
  const Table table(
      {{fmt::format("predicted beside measured (rank 0, {})", summary.device), 58, true},
       {"predicted", 16},
       {"measured", 16},
       {"error", 7}});
  fmt::print("{}", table.header());
  for (const model::Compared& row : summary.compared) {
    const std::string error =
        row.predicted == 0 ? "-"
                           : fmt::format("{:+.1f}%", 100 * (row.measured / row.predicted - 1));
    fmt::print("{}", table.row({row.name, with_unit(row.predicted, row.unit),
                                with_unit(row.measured, row.unit), error}));
  }
}

std::string describe_device(const std::string& name) {
  const std::string notice = twin_notice();
  return notice.empty() ? name : notice;
}

// The prediction of times knows no other ranks on a rank's core.
void say_shared_cores() {
  const int ranks = launcher_of_environment().local;
  const int cores = concurrent_ranks(describe_machine());
  if (ranks <= cores) return;
  fmt::print(
      "{} ranks share {} here: step time and utilisation are predicted for as many cores as "
      "ranks\n",
      ranks, counted(cores, "core"));
}

// One process that should have been several.
void check_launched(const model::TrainOptions& o) {
  const int wanted = o.tp * o.cp * o.pp * std::max(o.dp, 1);
  if (wanted > 1 && !launcher_of_environment().present) {
    throw UsageError(fmt::format(
        "tp {} x cp {} x pp {} x dp {} needs {} ranks and none were launched: start it as "
        "mpirun -n {} build/sinew train ...",
        o.tp, o.cp, o.pp, std::max(o.dp, 1), wanted, wanted));
  }
}

// Whether the plan runs on a device. What a device cannot train is refused where one was named and
// sends `auto` to the processor.
bool plan_takes_device(const Options& options, const model::TrainPlan& plan, bool speaks) {
  if (!wants_device(options.device, speaks)) return false;
  const std::string refusal = model::refuse_on_device(plan);
  if (options.device == "auto") {
    if (!refusal.empty() && speaks) fmt::print("device: cpu, since {}\n", refusal);
    return refusal.empty();
  }
  if (!refusal.empty()) throw UsageError(refusal);
  require_device(options.device);
  return true;
}

int run_train(const Options& options, const Args& args) {
  check_launched(options.train);
  constexpr const char* kNoRecording =
      "on the processor, which records no steps; legal: --device cuda or twin";
  if (options.train.graph && options.device == "cpu") args.refuse_given({"--graph"}, kNoRecording);
  if (options.train.out.empty()) {
    const std::string reason = "without --out: nothing is saved";
    if (options.train.async_save) args.refuse_given({"--async-save"}, reason);
    if (options.train.save_every > 0) args.refuse_given({"--save-every"}, reason);
    if (options.train.keep_last > 0) args.refuse_given({"--keep-last"}, reason);
  }
  use_selection(options.selection);
  const auto world = comm::Communicator::from_mpi(
      {.transport = options.transport, .timeout_s = options.timeout_s});
  require_same_options(*world, args, {"--data", "--tokenizer", "--init", "--offload", "--out"});
  const bool first_rank = world->rank() == 0;
  model::TrainPlan plan;
  std::optional<RunFolder> folder;
  std::unique_ptr<model::Tokens> tokens;
  std::unique_ptr<OpenDevice> device;
  agree(*world, [&] {
    if (options.train.data.empty())
      throw UsageError("--data is missing: name a text file, a .jsonl or a .bin file of tokens");
    plan = model::make_plan(options.train, world->world());
    require_train_memory(plan);
    if (plan_takes_device(options, plan, first_rank)) {
      select_device(world->rank());
      device = std::make_unique<OpenDevice>(options.timeout_s);
    }
    if (options.train.graph && device == nullptr) args.refuse_given({"--graph"}, kNoRecording);
  });
  // What the trainer will train on, looked at by every rank before the first work.
  std::exception_ptr unreadable;
  try {
    tokens = std::make_unique<model::Tokens>(
        *world, plan.options.data,
        model::DataReading{plan.options.data_format, plan.options.tokenizer});
  } catch (const comm::Error&) {
    throw;
  } catch (const Error&) {
    unreadable = std::current_exception();
  }
  const std::uint64_t fingerprint = tokens == nullptr ? 0 : tokens->fingerprint();
  const std::optional<Differing> stranger = first_difference(*world, {&fingerprint, 1});
  agree(*world, [&] {
    if (unreadable != nullptr) std::rethrow_exception(unreadable);
    if (stranger) {
      throw UsageError(fmt::format(
          "rank {} reads other data than rank 0 in '{}': all ranks need the same tokens",
          stranger->rank, plan.options.data));
    }
    const model::Dataset dataset(*tokens, plan.options.seq, plan.config.vocabulary,
                                 plan.options.seed, plan.options.validation_fraction);
    if (first_rank) {
      tokens->check(plan.config.vocabulary);
      folder.emplace(plan.options.out, plan.options.resume);
    }
  });
  const std::unique_ptr<model::Trainer> trainer =
      model::Trainer::create(plan, *world, std::move(tokens), device ? &device->train() : nullptr);
  if (first_rank)
    print_header(plan, *world, device == nullptr ? "cpu" : describe_device(device->train().name));

  if (first_rank && trainer->steps_done() >= plan.options.steps && plan.options.steps > 0) {
    fmt::print("nothing to train: the checkpoint is at step {} and --steps is {}\n",
               trainer->steps_done(), plan.options.steps);
  }
  Progress progress(plan, options.log_every, trainer->steps_done());
  const model::Summary summary = model::run_training(
      *trainer, plan, *world,
      [&](const model::StepMetrics& step, std::optional<double> validation_loss) {
        progress.add(step, validation_loss, first_rank);
      });
  const sched::Timeline timeline = trainer->timeline();
  if (first_rank) {
    if (plan.options.pp > 1 && !timeline.spans.empty())
      fmt::print("\n{}", sched::draw_text(timeline));
    print_summary(summary);
    say_shared_cores();
  }
  trainer->close();
  if (progress.skipped_last()) {
    throw Error("the last step was skipped since it was not finite: a lower --lr or --clip helps");
  }
  // The weights are none.
  if (summary.validation_loss && !std::isfinite(*summary.validation_loss)) {
    throw Error(
        "the validation loss is not finite, and neither are the weights: a lower --lr helps");
  }
  return 0;
}

}  // namespace

Run declare_train(Args& args) {
  auto o = std::make_shared<Options>();
  bind_train_options(args, o->train);
  args.option("--log-every", o->log_every,
              "steps between lines of progress; 0: twenty lines in all", {.min = 0});
  args.choice("--device", o->device, kDeviceNames,
              "where it is trained; auto takes a GPU where there is one and says when not; twin: "
              "the GPU kernels on the processor");
  args.option("--transport", o->transport, transport_help());
  args.option("--selection", o->selection, "file of `sinew tune` that auto reads first");
  args.option("--timeout", o->timeout_s, "seconds a rank waits for another",
              {.min = 0.1, .max = 86400});
  return [o, &args] { return run_train(*o, args); };
}

}  // namespace sinew::tools
