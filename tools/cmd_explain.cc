// explain: teaches one schedule: where it comes from, what it costs, what happens round by round.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "bench/bound.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/pipeline/simulate.h"
#include "sched/rounds.h"
#include "sched/timeline.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/output.h"
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
  int chunks = 0;
  std::string times = "1,1,1";
  bool list = false;
  std::string json;
  std::string svg;
  std::string text;
};

// Values of more ranks do not fit a line.
constexpr int kDrawnWorldMax = 16;

std::string cost_line(const sched::Cost& cost) {
  return fmt::format("{:g} rounds, {:.4g} m sent, {:.4g} m reduced", cost.rounds, cost.bytes,
                     cost.reduced);
}

// Where the drawing, the schedule and the facts go.
struct Files {
  Output svg;
  Output text;
  JsonLines json;
};

void explain_collective(const sched::Algorithm& row, const Options& options, Files& files) {
  const sched::Params params = {.world = options.world, .root = options.root};
  const sched::Schedule schedule = sched::generate(row, params);
  const sched::Cost cost = row.cost(params);
  const sched::Cost bound = bench::lower_bound(row.op, options.world);
  fmt::print("{} by {} for {}\n\n", sched::name_of(row.op), row.name,
             counted(options.world, "rank"));
  fmt::print("  closed form  {}\n", row.formula);
  fmt::print("  here         {} by the busiest rank\n", cost_line(cost));
  fmt::print("  bounds       {}, each by itself\n", cost_line(bound));
  fmt::print("  source       {}\n", row.source);
  fmt::print(
      "  terms        P ranks, L = ceil(log2 P), m bytes of the full vector, a latency, b time per "
      "byte,\n"
      "               g time to reduce a byte; the vector is cut into {}\n\n",
      counted(schedule.contract.chunks(), "chunk"));
  if (files.svg.wanted()) files.svg.keep(sched::draw_rounds_svg(schedule));
  if (files.text.wanted()) files.text.keep(sched::print(schedule));
  JsonRecord record = record_of(sched::name_of(row.op), row.name, options.world);
  record.add("formula", row.formula)
      .add("source", row.source)
      .add("rounds", cost.rounds)
      .add("sent_of_m", cost.bytes)
      .add("reduced_of_m", cost.reduced)
      .add("bound_rounds", bound.rounds)
      .add("bound_sent_of_m", bound.bytes)
      .add("bound_reduced_of_m", bound.reduced)
      .add("chunks", schedule.contract.chunks());
  files.json.write(record);
  if (options.world > kDrawnWorldMax) {
    fmt::print("  drawn for up to {} ranks\n", kDrawnWorldMax);
    return;
  }
  fmt::print(
      "  messages: 0 -c2+-> 1 means that rank 0 sends chunk 2 and rank 1 adds it to its own\n{}\n"
      "  of each chunk: whose contributions a rank holds; * of all, . none\n",
      sched::draw_rounds(schedule));
}

void explain_pipeline(const sched::PipeAlgorithm& row, const Options& options, Files& files) {
  const sched::PipeParams params = {options.world, chunks_of(row, options.chunks),
                                    options.microbatches};
  const sched::PipeTimes times = parse_times(options.times);
  const sched::PipeSchedule schedule = sched::generate(row, params);
  const sched::PipeSimulation simulation = sched::simulate(schedule, times);
  fmt::print("pipeline schedule {} for {}, {}, {} per rank\n\n", row.name,
             counted(params.ranks, "rank"),
             counted(params.microbatches, "microbatch", "microbatches"),
             counted(params.chunks, "model chunk"));
  fmt::print("  bubble       {}\n", row.formula);
  fmt::print("  here         {}{:.4g} of the ideal time by the closed form, {:.4g} simulated\n",
             row.exact(params, times) ? "" : "at most ", row.bubble(params, times),
             simulation.bubble);
  if (files.svg.wanted()) files.svg.keep(sched::draw_svg(simulation.timeline));
  if (files.text.wanted()) files.text.keep(sched::print(schedule));
  std::string live;
  int live_most = 0;
  for (int rank = 0; rank < params.ranks; ++rank) {
    live += fmt::format(" {}", row.peak_live(params, rank));
    live_most = std::max(live_most, row.peak_live(params, rank));
  }
  fmt::print("  live inputs {} at most on rank 0, 1, ...\n", live);
  fmt::print("  source       {}\n\n{}", row.source, sched::draw_text(simulation.timeline));
  JsonRecord record = record_of(schedule, simulation, row.bubble(params, times));
  record.add("formula", row.formula)
      .add("source", row.source)
      .add("exact", row.exact(params, times))
      .add("peak_live", live_most);
  files.json.write(record);
}

// Whether one of these operations has the algorithm that is explained where none is named.
bool has_ring(const std::string& ops) {
  const Selection all = select(ops, "all");
  return std::ranges::any_of(all.collectives, [](const sched::Algorithm* row) {
    return row->name == Options{}.algorithm;
  });
}

// All rows of both registries: what the README's table is made of.
void list_rows(JsonLines& json) {
  const Table table({{"operation", 14, true},
                     {"schedule", longest_name(), true},
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

int run_explain(Options& options, const Args& args) {
  if (!args.given("--algo") && !has_ring(options.op)) options.algorithm = "all";
  const Selection selection = select(options.op, options.algorithm);
  for (const std::string_view one : {"--svg", "--text"}) {
    if (options.list || selection.size() == 1 || !args.given(std::string(one))) continue;
    throw UsageError(fmt::format(
        "{} is of one schedule and --op {} --algo {} are {}: legal are one operation and one "
        "algorithm",
        one, options.op, options.algorithm, selection.size()));
  }
  if (!options.list) {
    refuse_unused(args, !selection.collectives.empty(), {"--root"}, !selection.pipelines.empty(),
                  {"--microbatches", "--chunks", "--times"});
  }
  require_root(options.root, options.world);
  if (!options.list && !selection.collectives.empty()) refuse_root(args, selection.collectives);
  require_different("--svg", options.svg, "--json", options.json);
  require_different("--svg", options.svg, "--text", options.text);
  require_different("--text", options.text, "--json", options.json);
  Files files{Output("--svg", options.svg), Output("--text", options.text),
              JsonLines(options.json)};
  if (options.list) {
    list_rows(files.json);
    files.json.keep();
    return 0;
  }
  const std::string where = counted(options.world, "rank");
  const Selection shown = keep_existing(
      selection, where,
      [&](const sched::Algorithm& row) {
        return row.refuse({.world = options.world, .root = options.root}).empty();
      },
      [&](const sched::PipeAlgorithm& row) {
        return row.refuse({options.world, chunks_of(row, options.chunks), options.microbatches})
            .empty();
      });
  bool first = true;
  for (const sched::Algorithm* row : shown.collectives) {
    if (!std::exchange(first, false)) fmt::print("\n");
    explain_collective(*row, options, files);
  }
  for (const sched::PipeAlgorithm* row : shown.pipelines) {
    if (!std::exchange(first, false)) fmt::print("\n");
    explain_pipeline(*row, options, files);
  }
  if (!shown.missing.empty()) fmt::print("\n{}", missing_line(shown, where));
  files.json.keep();
  return 0;
}

}  // namespace

Run declare_explain(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--op", o->op, "operations joined by commas, pipeline, or all");
  args.option("--algo", o->algorithm,
              "algorithms and pipeline schedules joined by commas, or all that fit, as where none "
              "is named and there is no ring");
  args.option("--world", o->world, "ranks", {.min = 1, .max = 64});
  args.option("--root", o->root, "root of broadcast, reduce, gather and scatter", {.min = 0});
  args.option("--microbatches", o->microbatches, "of a pipeline", {.min = 1, .max = 1000});
  args.option("--chunks", o->chunks,
              "model chunks per rank of a pipeline; 0: the schedule's usual number",
              {.min = 0, .max = 64});
  args.option("--times", o->times, "of a pipeline: forward,backward,weight[,transfer]");
  args.option("--svg", o->svg, "draw the one schedule into this file: its rounds, or timeline");
  args.option("--text", o->text,
              "write the one schedule in text form into this file, as verify --file, simulate "
              "--file, coll --schedule and train --schedule read it");
  args.flag("--list", o->list, "list all algorithms and pipeline schedules instead");
  args.option("--json", o->json, "write the facts, or the list, as JSON lines to this file");
  args.exclude("--list",
               {"--op", "--algo", "--world", "--root", "--microbatches", "--chunks", "--times",
                "--svg", "--text"},
               "the list holds all rows");
  return [o, &args] { return run_explain(*o, args); };
}

}  // namespace sinew::tools
