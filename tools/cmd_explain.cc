// explain: teaches one schedule: where it comes from, what it costs, what happens round by round.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "bench/bound.h"
#include "sched/base/error.h"
#include "sched/pipeline/simulate.h"
#include "sched/rounds.h"
#include "sched/timeline.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/json_lines.h"
#include "tools/selection.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

struct Options {
  std::string op = "all_reduce";
  std::string algorithm = "ring";
  int world = 4;
  int root = 0;
  int microbatches = 8;
  int chunks = 1;
  std::string times = "1,1,1";
  bool list = false;
  std::string json;
  std::string svg;
};

// Values of more ranks do not fit a line.
constexpr int kDrawnWorldMax = 16;

std::string cost_line(const sched::Cost& cost) {
  return fmt::format("{:g} rounds, {:.4g} m sent, {:.4g} m reduced", cost.rounds, cost.bytes,
                     cost.reduced);
}

void explain_collective(const sched::Algorithm& row, const Options& options) {
  const sched::Params params = {.world = options.world, .root = options.root};
  const sched::Schedule schedule = sched::generate(row, params);
  fmt::print("{} by {} for {} ranks\n\n", sched::name_of(row.op), row.name, options.world);
  fmt::print("  closed form  {}\n", row.formula);
  fmt::print("  here         {} by the busiest rank\n", cost_line(row.cost(params)));
  fmt::print("  bounds       {}, each by itself\n",
             cost_line(bench::lower_bound(row.op, options.world)));
  fmt::print("  source       {}\n", row.source);
  fmt::print(
      "  terms        P ranks, L = ceil(log2 P), m bytes of the full vector, a latency, b time per "
      "byte,\n"
      "               g time to reduce a byte; the vector is cut into {} chunk(s)\n\n",
      schedule.contract.chunks());
  if (!options.svg.empty()) write_text("--svg", options.svg, sched::draw_rounds_svg(schedule));
  if (options.world > kDrawnWorldMax) {
    fmt::print("  drawn for up to {} ranks\n", kDrawnWorldMax);
    return;
  }
  fmt::print(
      "  messages: 0 -c2+-> 1 means that rank 0 sends chunk 2 and rank 1 adds it to its own\n{}\n"
      "  of each chunk: whose contributions a rank holds; * of all, . none\n",
      sched::draw_rounds(schedule));
}

void explain_pipeline(const sched::PipeAlgorithm& row, const Options& options) {
  const sched::PipeParams params = {options.world, options.chunks, options.microbatches};
  const sched::PipeTimes times = parse_times(options.times);
  const sched::PipeSimulation simulation = sched::simulate(sched::generate(row, params), times);
  fmt::print("pipeline schedule {} for {} ranks, {} microbatches, {} model chunk(s) per rank\n\n",
             row.name, params.ranks, params.microbatches, params.chunks);
  fmt::print("  bubble       {}\n", row.formula);
  fmt::print("  here         {:.4g} of the ideal time by the closed form, {:.4g} simulated\n",
             row.bubble(params, times), simulation.bubble);
  if (!options.svg.empty()) write_text("--svg", options.svg, sched::draw_svg(simulation.timeline));
  std::string live;
  for (int rank = 0; rank < params.ranks; ++rank)
    live += fmt::format(" {}", row.peak_live(params, rank));
  fmt::print("  live inputs {} at most on rank 0, 1, ...\n", live);
  fmt::print("  source       {}\n\n{}", row.source, sched::draw_text(simulation.timeline));
}

// All rows of both registries: what the README's table is made of.
void list_rows(const std::string& json_path) {
  JsonLines json(json_path);
  const Table table({{"operation", 14, true},
                     {"schedule", 18, true},
                     {"cost or bubble", 62, true},
                     {"source", 6, true}});
  fmt::print("{}", table.header());
  const auto show = [&](std::string_view op, std::string_view name, std::string_view formula,
                        std::string_view source) {
    fmt::print("{}", table.row({std::string(op), std::string(name), std::string(formula),
                                std::string(source)}));
    json.write(
        JsonRecord().add("op", op).add("algo", name).add("formula", formula).add("source", source));
  };
  for (const sched::Algorithm& row : sched::algorithms()) {
    show(sched::name_of(row.op), row.name, row.formula, row.source);
  }
  for (const sched::PipeAlgorithm& row : sched::pipe_algorithms())
    show(kPipelineOp, row.name, row.formula, row.source);
}

int run_explain(const Options& options) {
  if (options.list) {
    list_rows(options.json);
    return 0;
  }
  const Selection selection = select(options.op, options.algorithm);
  const std::size_t selected = selection.collectives.size() + selection.pipelines.size();
  if (selected > 1 && !options.svg.empty()) {
    throw UsageError(fmt::format(
        "--svg draws one schedule and --op {} --algo {} are {}: legal are one operation and one "
        "algorithm",
        options.op, options.algorithm, selected));
  }
  if (selected > 1) {
    bool first = true;
    for (const sched::Algorithm* row : selection.collectives) {
      if (!row->refuse({.world = options.world}).empty()) continue;
      if (!std::exchange(first, false)) fmt::print("\n");
      explain_collective(*row, options);
    }
    for (const sched::PipeAlgorithm* row : selection.pipelines) {
      if (!row->refuse({options.world, options.chunks, options.microbatches}).empty()) continue;
      if (!std::exchange(first, false)) fmt::print("\n");
      explain_pipeline(*row, options);
    }
    return 0;
  }
  if (!selection.collectives.empty()) explain_collective(*selection.collectives[0], options);
  if (!selection.pipelines.empty()) explain_pipeline(*selection.pipelines[0], options);
  return 0;
}

}  // namespace

Run declare_explain(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--op", o->op, "operation, or pipeline");
  args.option("--algo", o->algorithm,
              "algorithm or pipeline schedule; all explains each that fits");
  args.option("--world", o->world, "ranks", {.min = 1, .max = 64});
  args.option("--root", o->root, "root of broadcast and reduce", {.min = 0});
  args.option("--microbatches", o->microbatches, "of a pipeline", {.min = 1, .max = 1000});
  args.option("--chunks", o->chunks, "model chunks per rank of a pipeline", {.min = 1, .max = 64});
  args.option("--times", o->times, "of a pipeline: forward,backward,weight[,transfer]");
  args.option("--svg", o->svg, "draw the one schedule into this file: its rounds, or timeline");
  args.flag("--list", o->list, "list all algorithms and pipeline schedules instead");
  args.option("--json", o->json, "write the list as JSON lines to this file");
  return [o] { return run_explain(*o); };
}

}  // namespace sinew::tools
