// simulate: how long schedules take on a described machine, drawn, and beside their closed forms.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "bench/bound.h"
#include "sched/base/error.h"
#include "sched/base/units.h"
#include "sched/passes/communication.h"
#include "sched/pipeline/simulate.h"
#include "sched/simulate.h"
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
  std::string algorithm = "all";
  std::string bytes = "8,64K,64M";
  std::string topology;
  std::string file;
  std::string times = "1,1,1";
  std::string svg;
  std::string trace;
  std::string json;
  int world = 8;
  int root = 0;
  int segments = 0;
  int group = 0;
  int microbatches = 8;
  int chunks = 1;
  double latency_us = 1;
  double bandwidth_gbps = 10;
  double reduce_gbps = 10;
};

// Writes the timeline where the options ask for it.
void keep_drawings(const Options& options, const sched::Timeline& timeline) {
  if (!options.svg.empty()) write_text("--svg", options.svg, sched::draw_svg(timeline));
  if (!options.trace.empty()) write_text("--trace", options.trace, sched::draw_trace(timeline));
}

bench::LinkModel links_of(const Options& options) {
  return bench::LinkModel::uniform(options.latency_us * 1e-6, 1e-9 / options.bandwidth_gbps,
                                   1e-9 / options.reduce_gbps);
}

sched::Topology topology_of(const Options& options) {
  if (!options.topology.empty()) return read_topology("--topology", options.topology);
  const bench::LinkModel links = links_of(options);
  return sched::homogeneous(options.world, {links.alpha_s(), links.least.beta_s_per_byte},
                            links.gamma_s_per_byte);
}

[[noreturn]] void refuse_all(const Options& options, int world) {
  throw UsageError(
      fmt::format("--algo {}: none of --op {} takes {} ranks; name one to see its rule",
                  options.algorithm, options.op, world));
}

class Collectives {
 public:
  Collectives(const Options& options, JsonLines& json)
      : options_(options),
        json_(json),
        topology_(topology_of(options)),
        sizes_bytes_(parse_byte_range(options.bytes)),
        table_({{"operation", 14, true},
                {"algorithm", 20, true},
                {"size", 9},
                {"simulated", 10},
                {"closed form", 11},
                {"ratio", 6},
                {"bound", 10}}) {}

  // row is null for a schedule from a file: it has no closed form.
  void show(const sched::Schedule& schedule, const sched::Algorithm* row) {
    if (!std::exchange(begun_, true)) {
      fmt::print("topology {}: {} ranks\n{}", topology_.name, topology_.world, table_.header());
    }
    for (const std::int64_t bytes : sizes_bytes_) {
      const sched::Simulation simulation = sched::simulate_fastest(
          schedule, topology_, {.bytes = bytes, .segments = options_.segments});
      // Closed forms speak of equal links; a topology of its own has none.
      const bool priced = row != nullptr && options_.topology.empty();
      const auto size = static_cast<double>(bytes);
      const double closed_s =
          priced ? bench::predicted_s(row->cost(params()), size, links_of(options_)) : 0;
      const double bound_s =
          bench::bound_s(schedule.contract.op, topology_.world, size, links_of(options_));
      fmt::print("{}", table_.row({std::string(sched::name_of(schedule.contract.op)), schedule.name,
                                   format_bytes(bytes), format_seconds(simulation.seconds),
                                   priced ? format_seconds(closed_s) : "-",
                                   priced && closed_s > 0
                                       ? fmt::format("{:.3f}", simulation.seconds / closed_s)
                                       : "-",
                                   options_.topology.empty() ? format_seconds(bound_s) : "-"}));
      JsonRecord record;
      record.add("op", sched::name_of(schedule.contract.op))
          .add("algo", schedule.name)
          .add("ranks", topology_.world)
          .add("bytes", bytes)
          .add("simulated_us", simulation.seconds * 1e6)
          .add("closed_form_us", priced ? std::optional(closed_s * 1e6) : std::nullopt)
          .add("bound_us", options_.topology.empty() ? std::optional(bound_s * 1e6) : std::nullopt);
      json_.write(record);
      last_ = simulation.timeline;
    }
  }

  // Draws the last one shown, as text where it was the only schedule.
  void draw(bool only) const {
    if (only) fmt::print("\n{}", sched::draw_text(last_));
    keep_drawings(options_, last_);
  }

  [[nodiscard]] sched::Params params() const {
    return {.world = topology_.world, .root = options_.root, .group = options_.group};
  }

 private:
  const Options& options_;
  JsonLines& json_;
  sched::Topology topology_;
  std::vector<std::int64_t> sizes_bytes_;
  Table table_;
  sched::Timeline last_;
  bool begun_ = false;
};

void simulate_collectives(const Options& options, const std::vector<const sched::Algorithm*>& rows,
                          JsonLines& json) {
  Collectives collectives(options, json);
  int shown = 0;
  for (const sched::Algorithm* row : rows) {
    // One row insists, several leave out those that refuse.
    if (rows.size() > 1 && !row->refuse(collectives.params()).empty()) continue;
    collectives.show(sched::generate(*row, collectives.params()), row);
    ++shown;
  }
  if (shown == 0) refuse_all(options, collectives.params().world);
  collectives.draw(shown == 1);
}

void show_pipeline(const Options& options, const sched::PipeSchedule& schedule,
                   const sched::PipeAlgorithm* row, JsonLines& json) {
  const sched::PipeTimes times = parse_times(options.times);
  const sched::PipeSimulation simulation = sched::simulate(schedule, times);
  const sched::PipeParams params = {schedule.ranks, schedule.chunks, schedule.microbatches};
  fmt::print(
      "{}  makespan {:g}, ideal {:g}, bubble {:.4f}{}\n", sched::draw_text(simulation.timeline),
      simulation.makespan, simulation.ideal, simulation.bubble,
      row == nullptr
          ? ""
          : fmt::format(", closed form {}{:.4f}", row->exact(params, times) ? "" : "at most ",
                        row->bubble(params, times)));
  keep_drawings(options, simulation.timeline);
  JsonRecord record;
  record.add("op", kPipelineOp)
      .add("algo", schedule.name)
      .add("ranks", schedule.ranks)
      .add("chunks", schedule.chunks)
      .add("microbatches", schedule.microbatches)
      .add("makespan", simulation.makespan)
      .add("ideal", simulation.ideal)
      .add("bubble", simulation.bubble)
      .add("closed_form_bubble",
           row == nullptr ? std::nullopt : std::optional(row->bubble(params, times)));
  json.write(record);
}

void simulate_pipelines(const Options& options,
                        const std::vector<const sched::PipeAlgorithm*>& rows, JsonLines& json) {
  const sched::PipeParams params = {options.world, options.chunks, options.microbatches};
  bool first = true;
  for (const sched::PipeAlgorithm* row : rows) {
    if (rows.size() > 1 && !row->refuse(params).empty()) continue;
    if (!std::exchange(first, false)) fmt::print("\n");
    show_pipeline(options, sched::generate(*row, params), row, json);
  }
  if (first) refuse_all(options, options.world);
}

void simulate_file(Options options, JsonLines& json) {
  const AnySchedule any = read_schedule("--file", options.file);
  if (const auto* schedule = std::get_if<sched::Schedule>(&any)) {
    options.world = schedule->contract.world;
    Collectives collectives(options, json);
    collectives.show(*schedule, nullptr);
    return collectives.draw(true);
  }
  show_pipeline(options, sched::insert_messages(std::get<sched::PipeSchedule>(any)), nullptr, json);
}

int run_simulate(const Options& options) {
  const Selection selection = select(options.op, options.algorithm);
  JsonLines json(options.json);
  if (!options.file.empty()) {
    simulate_file(options, json);
    return 0;
  }
  if (!selection.collectives.empty()) simulate_collectives(options, selection.collectives, json);
  if (!selection.pipelines.empty()) simulate_pipelines(options, selection.pipelines, json);
  return 0;
}

}  // namespace

Run declare_simulate(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--op", o->op, "operations joined by commas, pipeline, or all");
  args.option("--algo", o->algorithm,
              "algorithms and pipeline schedules joined by commas, or all that fit");
  args.option("--world", o->world, "ranks, where no topology says", {.min = 1, .max = 1024});
  args.option("--root", o->root, "root of broadcast and reduce", {.min = 0});
  args.option("--bytes", o->bytes, "sizes of the full vector: 1M, 8:64M:x4, joined by commas");
  args.option("--segments", o->segments, "pieces that messages are cut in; 0: as the schedule says",
              {.min = 0, .max = 4096});
  args.option("--group", o->group, "ranks per group of algorithms with levels; 0: as the row says",
              {.min = 0, .max = 1024});
  args.option("--topology", o->topology, "text file that describes ranks and links");
  args.option("--latency-us", o->latency_us, "of every link, where no topology says",
              {.min = 0, .max = 1e9});
  args.option("--bandwidth", o->bandwidth_gbps, "GB/s of every link, where no topology says",
              {.min = 1e-6, .max = 1e6});
  args.option("--reduce-rate", o->reduce_gbps, "GB/s of reductions, where no topology says",
              {.min = 1e-6, .max = 1e6});
  args.option("--microbatches", o->microbatches, "of a pipeline", {.min = 1, .max = 10000});
  args.option("--chunks", o->chunks, "model chunks per rank of a pipeline", {.min = 1, .max = 64});
  args.option("--times", o->times, "of a pipeline: forward,backward,weight[,transfer]");
  args.option("--file", o->file, "simulate the schedule in this text file instead");
  args.option("--svg", o->svg, "draw the last timeline into this file");
  args.option("--trace", o->trace, "write the last timeline as a trace for Perfetto");
  args.option("--json", o->json, "write JSON lines to this file");
  return [o] { return run_simulate(*o); };
}

}  // namespace sinew::tools
