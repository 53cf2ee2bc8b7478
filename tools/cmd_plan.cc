// plan: which layouts of a number of ranks are legal for a model, what each needs and takes on a
// described machine, best first.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>

#include "model/trainer.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "sched/plan/planner.h"
#include "tools/command.h"
#include "tools/escape.h"
#include "tools/json_lines.h"
#include "tools/table.h"
#include "tools/train_memory.h"
#include "tools/train_options.h"

namespace sinew::tools {
namespace {

struct Options {
  model::TrainOptions train;  // of the run: what no layout changes
  int ranks = 8;
  int cores = 0;
  int zero_max = 1;
  int cp_max = 1;
  double gflops = 100;
  double memory_gbps = 10;
  double latency_us = 1;
  double bandwidth_gbps = 5;
  std::string memory = "0";
  int shown = 12;
  std::string json;
};

sched::Machine machine_of(const Options& options) {
  sched::Machine machine;
  machine.flops = options.gflops * 1e9;
  machine.memory_per_s = options.memory_gbps * 1e9;
  machine.cores = options.cores;
  machine.memory_bytes = in_option("--memory", [&] { return parse_bytes(options.memory); });
  machine.links.fill({options.latency_us * 1e-6, 1e-9 / options.bandwidth_gbps});
  return machine;
}

sched::PlanRequest request_of(const Options& options) {
  // The rules of numbers and names are those of one rank; the search adds what ranks change.
  model::TrainOptions alone = options.train;
  alone.shard = 0;
  alone.reshard_after = "forward";
  alone.order = std::string(sched::kDefaultOrder);
  sched::PlanRequest request;
  request.run = model::make_plan(alone, 1).run;
  request.run.sequence_parallel = options.train.sequence_parallel;
  request.run.order = options.train.order;
  request.run.shard = options.train.shard;
  request.run.reshard_after_forward = options.train.reshard_after == "forward";
  request.world = options.ranks;
  request.cp_max = options.cp_max;
  constexpr std::array kZeros = {sched::Zero::kNone, sched::Zero::kOptimizer,
                                 sched::Zero::kGradients, sched::Zero::kParameters};
  request.zeros.assign(kZeros.begin(), kZeros.begin() + options.zero_max + 1);
  return request;
}

// As a shell takes it for one word.
std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_./,:=+-") == std::string::npos;
  if (plain) return text;
  std::string word = "'";
  for (const char letter : text)
    word += letter == '\'' ? std::string("'\\''") : std::string{letter};
  return word + "'";
}

// What `sinew train` is to be told to run it so.
std::string train_arguments(const Options& options, const sched::RunShape& run) {
  const model::TrainOptions& o = options.train;
  std::string text = fmt::format("--model {} --batch {} --seq {} --dtype {}", shell_word(o.model),
                                 run.batch, run.time, o.dtype);
  const model::TrainOptions plain;
  const auto add = [&text](std::string_view name, const auto& value, const auto& usual) {
    if (value != usual) text += fmt::format(" {} {}", name, value);
  };
  add("--rounding", o.rounding, plain.rounding);
  add("--gradients", o.gradients, plain.gradients);
  add("--recompute", o.recompute, plain.recompute);
  add("--order", run.order, plain.order);
  add("--tp", run.sizes.tp, 1);
  if (run.sequence_parallel) text += " --sequence-parallel";
  add("--cp", run.sizes.cp, 1);
  if (run.sizes.cp > 1) add("--cp-mode", o.cp_mode, plain.cp_mode);
  add("--pp", run.sizes.pp, 1);
  if (run.sizes.pp > 1) text += fmt::format(" --schedule {} --chunks {}", run.schedule, run.chunks);
  text += fmt::format(" --microbatches {}", run.microbatches);
  add("--zero", static_cast<int>(run.zero), 0);
  if (run.zero != sched::Zero::kNone) add("--shard", run.shard, 0);
  if (run.zero == sched::Zero::kParameters)
    add("--reshard-after", o.reshard_after, plain.reshard_after);
  return text;
}

std::string layout_of(const sched::RunShape& run) {
  return fmt::format("tp {} cp {} pp {} dp {}", run.sizes.tp, run.sizes.cp, run.sizes.pp,
                     run.sizes.dp);
}

int run_plan(const Options& options, const Args& args) {
  if (options.train.reshard_after == "backward" && options.zero_max < 3) {
    throw UsageError(fmt::format(
        "--reshard-after backward with --zero-max {}: no weights are gathered; legal: --zero-max "
        "3, or --reshard-after forward",
        options.zero_max));
  }
  if (options.cp_max == 1)
    args.refuse_given({"--cp-mode"}, "with --cp-max 1: no layout cuts the context");
  if (options.zero_max == 0) args.refuse_given({"--shard"}, "with --zero-max 0: nothing is cut");
  const sched::PlanRequest request = request_of(options);
  const sched::Machine machine = machine_of(options);
  JsonLines json(options.json);
  const std::vector<sched::Plan> plans = sched::plans(request, machine);
  const bool cuts = std::ranges::any_of(
      plans, [](const sched::Plan& plan) { return plan.run.zero != sched::Zero::kNone; });
  if (request.run.shard > 0 && !cuts) {
    throw UsageError(fmt::format(
        "--shard {}: it divides the data ranks (dp x cp) of no layout of {}; legal are divisors",
        request.run.shard, counted(options.ranks, "rank")));
  }
  fmt::print("{} on {}, batch {} x {}: {}, the best {} of them\n", escaped(request.run.model.name),
             counted(options.ranks, "rank"), options.train.batch,
             counted(request.run.time, "token"), counted(std::ssize(plans), "legal layout"),
             std::min<std::size_t>(plans.size(), static_cast<std::size_t>(options.shown)));
  const Table table({{"layout", 22, true},
                     {"schedule", 14, true},
                     {"m", 4},
                     {"zero", 4},
                     {"memory", 9},
                     {"step", 9},
                     {"bubble", 6},
                     {"sent/step", 9},
                     {"tp stall", 8},
                     {"dp stall", 8},
                     {"", 12, true}});
  fmt::print("{}", table.header());
  int rank = 0;
  for (const sched::Plan& plan : plans) {
    const sched::Prediction& p = plan.prediction;
    const std::string schedule = plan.run.sizes.pp == 1 ? "-" : plan.run.schedule;
    if (rank++ < options.shown) {
      fmt::print("{}",
                 table.row({layout_of(plan.run), schedule, fmt::format("{}", plan.run.microbatches),
                            fmt::format("{}", static_cast<int>(plan.run.zero)),
                            format_bytes(p.memory_bytes()), format_seconds(p.step_s),
                            fmt::format("{:.3f}", p.bubble),
                            format_bytes(static_cast<std::int64_t>(p.sent_bytes)),
                            fmt::format("{:.1f}%", 100 * p.stall(sched::Axis::kTp)),
                            fmt::format("{:.1f}%", 100 * p.stall(sched::Axis::kDp)),
                            plan.fits ? "" : "does not fit"}));
    }
    JsonRecord record;
    record.add("model", options.train.model)
        .add("ranks", options.ranks)
        .add("batch", options.train.batch)
        .add("seq", request.run.time)
        .add("tp", plan.run.sizes.tp)
        .add("cp", plan.run.sizes.cp)
        .add("pp", plan.run.sizes.pp)
        .add("dp", plan.run.sizes.dp)
        .add("schedule", schedule)
        .add("microbatches", plan.run.microbatches)
        .add("zero", static_cast<int>(plan.run.zero))
        .add("reshard_after", plan.run.keeps_gathered() ? "backward" : "forward")
        .add("memory_bytes", p.memory_bytes())
        .add("static_bytes", p.static_bytes.total())
        .add("activation_bytes", p.activation_bytes)
        .add("working_bytes", p.working_bytes)
        .add("step_s", p.step_s)
        .add("bubble", p.bubble)
        .add("sent_bytes", static_cast<std::int64_t>(std::llround(p.sent_bytes)))
        .add("fits", plan.fits)
        .add("train", train_arguments(options, plan.run));
    json.write(record);
  }
  if (plans.front().fits) {
    fmt::print("\nthe first: tools/mpirun.sh -n {} build/sinew train {} --data FILE\n",
               options.ranks, train_arguments(options, plans.front().run));
  } else {
    fmt::print("\nnone fits {}\n", format_bytes(machine.memory_bytes));
  }
  json.keep();
  return 0;
}

}  // namespace

Run declare_plan(Args& args) {
  auto o = std::make_shared<Options>();
  model::TrainOptions& t = o->train;
  t.model = "gpt2-124m";
  t.batch = 32;
  args.option("--model", t.model, model_help());
  args.option("--ranks", o->ranks, "how many", {.min = 1, .max = 4096});
  args.option("--batch", t.batch, "sequences of the whole step", {.min = 1, .max = 65536});
  bind_shape_options(args, t);
  args.option("--zero-max", o->zero_max, "highest ZeRO stage to consider", {.min = 0, .max = 3});
  args.option("--cp-max", o->cp_max, "most context-parallel ranks to consider",
              {.min = 1, .max = 4096});
  args.option("--gflops", o->gflops, "of one rank alone", {.min = 1e-3, .max = 1e9});
  args.option("--memory-rate", o->memory_gbps, "GB/s of the optimizer's streams",
              {.min = 1e-3, .max = 1e6});
  args.option("--memory", o->memory, "of one rank, as 80G; 0: no limit");
  args.option("--cores", o->cores, "ranks that compute at once; 0: all", {.min = 0});
  args.option("--latency-us", o->latency_us, "of a message", {.min = 0, .max = 1e9});
  args.option("--bandwidth", o->bandwidth_gbps, "GB/s of a link", {.min = 1e-6, .max = 1e6});
  args.option("--shown", o->shown, "rows to print; --json writes all", {.min = 1, .max = 1000000});
  args.option("--json", o->json, "write JSON lines to this file");
  return [o, &args] { return run_plan(*o, args); };
}

}  // namespace sinew::tools
