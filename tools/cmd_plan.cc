// plan: which layouts of a number of ranks are legal for a model, what each needs and takes on a
// described machine, best first.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "model/config.h"
#include "sched/base/error.h"
#include "sched/base/units.h"
#include "sched/plan/planner.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/table.h"
#include "tools/train_memory.h"

namespace sinew::tools {
namespace {

struct Options {
  std::string model = "gpt2-124m";
  int ranks = 8;
  std::int64_t batch = 32;
  std::int64_t seq = 0;
  int cores = 0;
  int zero_max = 1;
  int shard = 0;
  std::string reshard_after = "forward";
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
  const model::Config config = model::load_config(options.model);
  sched::PlanRequest request;
  request.run.model = sched::gpt2_shape(config.name, config.layers, config.heads, config.channels,
                                        config.vocabulary, config.max_time);
  request.run.batch = options.batch;
  request.run.time = options.seq > 0 ? options.seq : config.max_time;
  request.world = options.ranks;
  request.cp_max = options.cp_max;
  request.run.shard = options.shard;
  request.run.reshard_after_forward = options.reshard_after == "forward";
  constexpr std::array kZeros = {sched::Zero::kNone, sched::Zero::kOptimizer,
                                 sched::Zero::kGradients, sched::Zero::kParameters};
  request.zeros.assign(kZeros.begin(), kZeros.begin() + options.zero_max + 1);
  return request;
}

std::string layout_of(const sched::RunShape& run) {
  return fmt::format("tp {} cp {} pp {} dp {}", run.sizes.tp, run.sizes.cp, run.sizes.pp,
                     run.sizes.dp);
}

int run_plan(const Options& options) {
  if (options.reshard_after == "backward" && options.zero_max < 3) {
    throw UsageError(fmt::format(
        "--reshard-after backward with --zero-max {}: no weights are gathered; legal: --zero-max "
        "3, or --reshard-after forward",
        options.zero_max));
  }
  const sched::PlanRequest request = request_of(options);
  const sched::Machine machine = machine_of(options);
  JsonLines json(options.json);
  const std::vector<sched::Plan> plans = sched::plans(request, machine);
  fmt::print("{} on {}, batch {} x {} tokens: {} legal layouts, the best {} of them\n",
             request.run.model.name, counted(options.ranks, "rank"), options.batch,
             request.run.time, plans.size(),
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
    record.add("tp", plan.run.sizes.tp)
        .add("cp", plan.run.sizes.cp)
        .add("pp", plan.run.sizes.pp)
        .add("dp", plan.run.sizes.dp)
        .add("schedule", schedule)
        .add("microbatches", plan.run.microbatches)
        .add("zero", static_cast<int>(plan.run.zero))
        .add("reshard_after", plan.run.keeps_gathered() ? "backward" : "forward")
        .add("memory_bytes", p.memory_bytes())
        .add("step_s", p.step_s)
        .add("bubble", p.bubble)
        .add("sent_bytes", p.sent_bytes)
        .add("fits", plan.fits);
    json.write(record);
  }
  json.keep();
  return 0;
}

}  // namespace

Run declare_plan(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--model", o->model, model_help());
  args.option("--ranks", o->ranks, "how many", {.min = 1, .max = 4096});
  args.option("--batch", o->batch, "sequences of the whole step", {.min = 1, .max = 65536});
  args.option("--seq", o->seq, "tokens of a sequence; 0: the model's longest", {.min = 0});
  args.option("--zero-max", o->zero_max, "highest ZeRO stage to consider", {.min = 0, .max = 3});
  args.option("--shard", o->shard,
              "data ranks that share what ZeRO cuts, in each of several groups; 0: all",
              {.min = 0});
  args.choice("--reshard-after", o->reshard_after, {"forward", "backward"},
              "under ZeRO 3: when layers' gathered weights are freed");
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
  return [o] { return run_plan(*o); };
}

}  // namespace sinew::tools
