// simulate: how long schedules take on a described machine, drawn, and beside their closed forms.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "bench/bound.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "sched/pipeline/simulate.h"
#include "sched/pipeline/verify.h"
#include "sched/simulate.h"
#include "sched/timeline.h"
#include "sched/verify.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/json_lines.h"
#include "tools/output.h"
#include "tools/selection.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

constexpr int kDrawnWorldMax = 64;
// A forward with its backward and messages takes 1 KiB and 3 us while a pipeline is simulated: 4
// GiB and 14 s.
constexpr std::int64_t kForwardsMax = 1 << 22;

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
  int chunks = 0;
  double latency_us = 1;
  double bandwidth_gbps = 10;
  double reduce_gbps = 10;
};

// Where the lines and the last timeline go.
struct Files {
  Output svg;
  Output trace;
  JsonLines json;

  [[nodiscard]] bool drawn() const { return svg.wanted() || trace.wanted(); }
  void draw(const sched::Timeline& timeline) {
    if (svg.wanted()) last_svg = sched::draw_svg(timeline);
    if (trace.wanted()) last_trace = sched::draw_trace(timeline);
  }
  void keep() {
    svg.keep(last_svg);
    trace.keep(last_trace);
    json.keep();
  }

  std::string last_svg;
  std::string last_trace;
};

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

class Collectives {
 public:
  Collectives(const Options& options, sched::Topology topology, Files& files)
      : options_(options),
        files_(files),
        topology_(std::move(topology)),
        sizes_bytes_(parse_sizes(options.bytes)),
        table_({{"operation", 14, true},
                {"algorithm", longest_name(), true},
                {"size", 9},
                {"simulated", 10},
                {"closed form", 11},
                {"ratio", 6},
                {"bound", 10}}) {}

  // row is null for a schedule from a file: it has no closed form.
  void show(sched::Schedule schedule, const sched::Algorithm* row) {
    // A barrier has no vector: its time is the same whatever --bytes says.
    const bool sized = schedule.contract.op != sched::Collective::kBarrier;
    for (const std::int64_t bytes : sized ? sizes_bytes_ : std::vector<std::int64_t>{0}) {
      const sched::Simulation simulation = simulate(schedule, bytes, false);
      if (!std::exchange(begun_, true)) {
        fmt::print("topology {}: {}\n{}", topology_.name, counted(topology_.world, "rank"),
                   table_.header());
      }
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
      JsonRecord record =
          record_of(sched::name_of(schedule.contract.op), schedule.name, topology_.world);
      record.add("bytes", bytes)
          .add("simulated_us", simulation.seconds * 1e6)
          .add("closed_form_us", priced ? std::optional(closed_s * 1e6) : std::nullopt)
          .add("bound_us", options_.topology.empty() ? std::optional(bound_s * 1e6) : std::nullopt);
      files_.json.write(record);
      std::fflush(stdout);
      last_bytes_ = bytes;
    }
    last_ = std::move(schedule);
  }

  // Draws the last one shown, as text where it was the only schedule and people can see anything.
  void draw(bool only) const {
    const bool as_text = only && topology_.world <= kDrawnWorldMax;
    if (only && !as_text) fmt::print("\ndrawn for up to {} ranks\n", kDrawnWorldMax);
    if (!as_text && !files_.drawn()) return;
    const sched::Timeline timeline = simulate(last_, last_bytes_, true).timeline;
    if (as_text) fmt::print("\n{}", sched::draw_text(timeline));
    files_.draw(timeline);
  }

  [[nodiscard]] sched::Params params() const {
    return {.world = topology_.world, .root = options_.root, .group = options_.group};
  }

 private:
  [[nodiscard]] sched::Simulation simulate(const sched::Schedule& schedule, std::int64_t bytes,
                                           bool timeline) const {
    return sched::simulate_fastest(
        schedule, topology_, {.bytes = bytes, .segments = options_.segments, .timeline = timeline});
  }

  const Options& options_;
  Files& files_;
  sched::Topology topology_;
  std::vector<std::int64_t> sizes_bytes_;
  Table table_;
  sched::Schedule last_;
  std::int64_t last_bytes_ = 0;
  bool begun_ = false;
};

void require_few_forwards(const sched::PipeParams& params) {
  const std::int64_t forwards =
      std::int64_t{params.ranks} * params.chunks * std::int64_t{params.microbatches};
  if (forwards <= kForwardsMax) return;
  throw UsageError(fmt::format(
      "--world {} x {} x --microbatches {} is {} forwards: legal to simulate are up to {}",
      params.ranks, counted(params.chunks, "chunk"), params.microbatches, forwards, kForwardsMax));
}

void show_pipeline(const Options& options, const sched::PipeSchedule& schedule,
                   const sched::PipeAlgorithm* row, Files& files) {
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
  files.draw(simulation.timeline);
  files.json.write(
      record_of(schedule, simulation,
                row == nullptr ? std::nullopt : std::optional(row->bubble(params, times))));
}

const std::vector<std::string> kOfCollectives = {"--root",      "--bytes",      "--segments",
                                                 "--group",     "--topology",   "--latency-us",
                                                 "--bandwidth", "--reduce-rate"};
const std::vector<std::string> kOfPipelines = {"--microbatches", "--chunks", "--times"};

void simulate_file(Options options, const Args& args, Files& files) {
  AnySchedule any = read_schedule("--file", options.file);
  std::visit([&](const auto& one) { proved("--file", options.file, sched::verify(one)); }, any);
  auto* schedule = std::get_if<sched::Schedule>(&any);
  refuse_unused(args, schedule != nullptr, kOfCollectives, schedule == nullptr, kOfPipelines);
  if (schedule == nullptr) {
    args.refuse_given({"--microbatches", "--chunks"}, "beside --file: the file says what it is of");
    return show_pipeline(options, std::get<sched::PipeSchedule>(any), nullptr, files);
  }
  options.world = schedule->contract.world;
  Collectives collectives(options, topology_of(options), files);
  collectives.show(std::move(*schedule), nullptr);
  collectives.draw(true);
}

// Refuses --group where it was given and no collective that is there has levels: such a one refuses
// groups larger than the world.
void refuse_group(const Args& args, const std::vector<const sched::Algorithm*>& collectives,
                  const sched::Params& params) {
  sched::Params plain = params;
  plain.group = 0;
  sched::Params beyond = params;
  beyond.group = params.world + 1;
  const bool levels = std::ranges::any_of(collectives, [&](const sched::Algorithm* row) {
    return row->refuse(beyond) != row->refuse(plain);
  });
  if (!levels) args.refuse_given({"--group"}, "here: of algorithms with levels, as hierarchical");
}

void simulate_rows(const Options& options, const Args& args, Files& files) {
  const Selection selection = select(options.op, options.algorithm);
  refuse_unused(args, !selection.collectives.empty(), kOfCollectives, !selection.pipelines.empty(),
                kOfPipelines);
  Collectives collectives(options, topology_of(options), files);
  const sched::Params params = collectives.params();
  require_root(params.root, params.world);
  if (!selection.collectives.empty()) {
    refuse_root(args, selection.collectives);
    refuse_group(args, selection.collectives, params);
  }
  const auto pipe_params = [&](const sched::PipeAlgorithm& row) {
    return sched::PipeParams{options.world, chunks_of(row, options.chunks), options.microbatches};
  };
  for (const sched::PipeAlgorithm* row : selection.pipelines)
    require_few_forwards(pipe_params(*row));
  const std::string where = counted(params.world, "rank");
  const Selection shown = keep_existing(
      selection, where, [&](const sched::Algorithm& row) { return row.refuse(params).empty(); },
      [&](const sched::PipeAlgorithm& row) { return row.refuse(pipe_params(row)).empty(); });
  for (const sched::Algorithm* row : shown.collectives)
    collectives.show(sched::generate(*row, params), row);
  if (!shown.collectives.empty()) collectives.draw(shown.size() == 1);
  bool first = shown.collectives.empty();
  for (const sched::PipeAlgorithm* row : shown.pipelines) {
    if (!std::exchange(first, false)) fmt::print("\n");
    show_pipeline(options, sched::generate(*row, pipe_params(*row)), row, files);
  }
  if (!shown.missing.empty()) fmt::print("\n{}", missing_line(shown, where));
}

int run_simulate(const Options& options, const Args& args) {
  require_different("--svg", options.svg, "--trace", options.trace);
  require_different("--svg", options.svg, "--json", options.json);
  require_different("--trace", options.trace, "--json", options.json);
  Files files{Output("--svg", options.svg),
              Output("--trace", options.trace),
              JsonLines(options.json),
              {},
              {}};
  if (options.file.empty()) {
    simulate_rows(options, args, files);
  } else {
    simulate_file(options, args, files);
  }
  files.keep();
  return 0;
}

}  // namespace

Run declare_simulate(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--op", o->op, "operations joined by commas, pipeline, or all");
  args.option("--algo", o->algorithm,
              "algorithms and pipeline schedules joined by commas, or all that fit");
  args.option("--world", o->world, "ranks, where no topology says", {.min = 1, .max = 1024});
  args.option("--root", o->root, "root of broadcast, reduce, gather and scatter", {.min = 0});
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
  args.option("--chunks", o->chunks,
              "model chunks per rank of a pipeline; 0: the schedule's usual number",
              {.min = 0, .max = 64});
  args.option("--times", o->times, "of a pipeline: forward,backward,weight[,transfer]");
  args.option("--file", o->file, "simulate the schedule in this text file instead");
  args.option("--svg", o->svg, "draw the last timeline into this file");
  args.option("--trace", o->trace, "write the last timeline as a trace for Perfetto");
  args.option("--json", o->json, "write JSON lines to this file");
  args.exclude("--file", {"--op", "--algo", "--world", "--root", "--group"},
               "the file says what it is of");
  args.exclude("--topology", {"--latency-us", "--bandwidth", "--reduce-rate"},
               "the topology says it");
  args.exclude("--topology", {"--world"}, "the topology says how many ranks it has");
  return [o, &args] { return run_simulate(*o, args); };
}

}  // namespace sinew::tools
