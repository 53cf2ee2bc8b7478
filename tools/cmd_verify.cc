// verify: proves schedules: every row of the registries over ranges of ranks, or one from a file.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/pipeline/verify.h"
#include "sched/verify.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/json_lines.h"
#include "tools/selection.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

constexpr int kWorldMax = 1024;

struct Options {
  std::string op = "all";
  std::string algorithm = "all";
  std::string worlds = "1:16";
  std::string file;
  std::string json;
  int root = 0;
  int microbatches = 8;
  int chunks_max = 0;
};

// Prints what is proved and remembers what is not.
class Report {
 public:
  explicit Report(const std::string& json)
      : json_(json),
        table_({{"operation", 14, true},
                {"schedule", longest_name(), true},
                {"ranks", 6},
                {"rounds", 7},
                {"sent/m", 7},
                {"reduced/m", 9},
                {"credits", 7},
                {"", 10, true}}) {
    fmt::print("{}", table_.header());
  }

  void fail(const std::string& what, const std::string& failure, const std::string& drawing) {
    fmt::print("{}: {}\n{}", what, failure, drawing);
    ++failed_;
  }

  // One line for the proofs of one row over all worlds; the facts are those of the largest.
  void proved(std::string_view op, std::string_view name, int worlds, int world,
              const sched::Facts& facts) {
    fmt::print(
        "{}",
        table_.row({std::string(op), std::string(name), fmt::format("{}", world),
                    fmt::format("{:g}", facts.cost.rounds), fmt::format("{:.3f}", facts.cost.bytes),
                    fmt::format("{:.3f}", facts.cost.reduced), fmt::format("{}", facts.credits),
                    "proved for " + counted(worlds, "world")}));
    std::fflush(stdout);
    JsonRecord record = record_of(op, name, world);
    record.add("worlds", worlds)
        .add("rounds", facts.cost.rounds)
        .add("sent_of_m", facts.cost.bytes)
        .add("reduced_of_m", facts.cost.reduced)
        .add("credits", facts.credits)
        .add("credits_in_order", facts.credits_in_order)
        .add("same_expression", facts.same_expression);
    json_.write(record);
  }

  void proved(std::string_view name, int shapes, int ranks, const sched::PipeFacts& facts) {
    const int live = *std::max_element(facts.peak_live.begin(), facts.peak_live.end());
    fmt::print(
        "{}", table_.row(
                  {std::string(kPipelineOp), std::string(name), fmt::format("{}", ranks), "-", "-",
                   "-", fmt::format("{}", facts.credits),
                   fmt::format("proved for {}, at most {} live", counted(shapes, "shape"), live)}));
    std::fflush(stdout);
    JsonRecord record = record_of(kPipelineOp, name, ranks);
    record.add("shapes", shapes)
        .add("credits", facts.credits)
        .add("peak_live", live)
        .add("messages", facts.messages);
    json_.write(record);
  }

  int finish() {
    json_.keep();
    if (failed_ > 0)
      throw Error(
          fmt::format("{} {} wrong", counted(failed_, "schedule"), failed_ == 1 ? "is" : "are"));
    return 0;
  }

 private:
  JsonLines json_;
  Table table_;
  int failed_ = 0;
};

void verify_row(const sched::Algorithm& row, const std::vector<int>& worlds, int root,
                Report& report) {
  int proved = 0;
  int largest = 0;
  sched::Facts facts;
  for (const int world : worlds) {
    const sched::Params params = {.world = world, .root = std::min(root, world - 1)};
    if (!row.refuse(params).empty()) continue;
    const sched::Verdict verdict = sched::verify(sched::generate(row, params));
    const std::string failure = verdict.proved()
                                    ? sched::cost_difference(row, params, verdict.facts.cost)
                                    : verdict.failure;
    if (!failure.empty()) {
      report.fail(
          fmt::format("{} by {} for {}", sched::name_of(row.op), row.name, counted(world, "rank")),
          failure, verdict.drawing);
      return;
    }
    ++proved;
    if (world > largest) facts = verdict.facts;
    largest = std::max(largest, world);
  }
  report.proved(sched::name_of(row.op), row.name, proved, largest, facts);
}

// Calls `visit` for each number of ranks, chunks and microbatches at which the row exists, until it
// returns false.
template <typename Visit>
void for_each_shape(const sched::PipeAlgorithm& row, const std::vector<int>& worlds,
                    const Options& options, Visit&& visit) {
  for (const int ranks : worlds) {
    for (int chunks = 1; chunks <= chunks_of(row, options.chunks_max); ++chunks) {
      for (int microbatches = 1; microbatches <= options.microbatches; ++microbatches) {
        const sched::PipeParams params = {ranks, chunks, microbatches};
        if (row.refuse(params).empty() && !visit(params)) return;
      }
    }
  }
}

void verify_row(const sched::PipeAlgorithm& row, const std::vector<int>& worlds,
                const Options& options, Report& report) {
  int proved = 0;
  int largest = 0;
  bool failed = false;
  sched::PipeFacts facts;
  for_each_shape(row, worlds, options, [&](const sched::PipeParams& params) {
    const sched::PipeVerdict verdict = sched::verify(sched::generate(row, params));
    if (!verdict.proved()) {
      report.fail(fmt::format("pipeline {} for {}, {}, {}", row.name, counted(params.ranks, "rank"),
                              counted(params.chunks, "chunk"),
                              counted(params.microbatches, "microbatch", "microbatches")),
                  verdict.failure, verdict.drawing);
      failed = true;
      return false;
    }
    ++proved;
    largest = std::max(largest, params.ranks);
    facts = verdict.facts;
    return true;
  });
  if (!failed) report.proved(row.name, proved, largest, facts);
}

void verify_file(const Options& options, const AnySchedule& any, Report& report) {
  if (const auto* schedule = std::get_if<sched::Schedule>(&any)) {
    const sched::Verdict verdict = sched::verify(*schedule);
    const int world = schedule->contract.world;
    if (!verdict.proved()) return report.fail(options.file, verdict.failure, verdict.drawing);
    return report.proved(sched::name_of(schedule->contract.op), schedule->name, 1, world,
                         verdict.facts);
  }
  const auto& written = std::get<sched::PipeSchedule>(any);
  const sched::PipeVerdict verdict = sched::verify(written);
  if (!verdict.proved()) return report.fail(options.file, verdict.failure, verdict.drawing);
  report.proved(written.name, 1, written.ranks, verdict.facts);
}

// The rows that exist for some of the worlds. One alone that exists for none is refused by its own
// rule.
Selection existing(const Selection& selection, const std::vector<int>& worlds,
                   const Options& options) {
  const auto some_world = [&](const sched::Algorithm& row) {
    return std::any_of(worlds.begin(), worlds.end(), [&](int world) {
      return row.refuse({.world = world, .root = std::min(options.root, world - 1)}).empty();
    });
  };
  const auto some_shape = [&](const sched::PipeAlgorithm& row) {
    bool found = false;
    for_each_shape(row, worlds, options, [&](const sched::PipeParams&) { return !(found = true); });
    return found;
  };
  if (selection.size() == 1) {
    for (const sched::Algorithm* row : selection.collectives)
      if (!some_world(*row)) static_cast<void>(sched::generate(*row, {.world = worlds.front()}));
    for (const sched::PipeAlgorithm* row : selection.pipelines) {
      if (some_shape(*row)) continue;
      static_cast<void>(sched::generate(
          *row, {worlds.front(), chunks_of(*row, options.chunks_max), options.microbatches}));
    }
  }
  return keep_existing(selection, fmt::format("--world {}", options.worlds), some_world,
                       some_shape);
}

int run_verify(const Options& options, const Args& args) {
  if (!options.file.empty()) {
    const AnySchedule any = read_schedule("--file", options.file);
    Report report(options.json);
    verify_file(options, any, report);
    return report.finish();
  }
  const Selection selection = select(options.op, options.algorithm);
  const std::vector<int> worlds = parse_worlds(options.worlds, kWorldMax);
  refuse_unused(args, !selection.collectives.empty(), {"--root"}, !selection.pipelines.empty(),
                {"--microbatches", "--chunks"});
  require_root(options.root, *std::max_element(worlds.begin(), worlds.end()));
  if (!selection.collectives.empty()) refuse_root(args, selection.collectives);
  const Selection shown = existing(selection, worlds, options);
  Report report(options.json);
  for (const sched::Algorithm* row : shown.collectives)
    verify_row(*row, worlds, options.root, report);
  for (const sched::PipeAlgorithm* row : shown.pipelines) verify_row(*row, worlds, options, report);
  fmt::print("{}", missing_line(shown, fmt::format("--world {}", options.worlds)));
  return report.finish();
}

}  // namespace

Run declare_verify(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--op", o->op, "operations joined by commas, pipeline, or all");
  args.option("--algo", o->algorithm, "algorithms and pipeline schedules joined by commas, or all");
  args.option("--world", o->worlds, "ranks: 4, 1:64, or such joined by commas");
  args.option("--root", o->root,
              "root of broadcast, reduce, gather and scatter; the last rank of smaller worlds",
              {.min = 0});
  args.option("--microbatches", o->microbatches, "most microbatches of pipelines",
              {.min = 1, .max = 64});
  args.option("--chunks", o->chunks_max,
              "most model chunks per rank of pipelines; 0: the schedule's usual number",
              {.min = 0, .max = 8});
  args.option("--file", o->file, "prove the schedule in this text file instead");
  args.option("--json", o->json, "write JSON lines to this file");
  args.exclude("--file", {"--op", "--algo", "--world", "--root", "--microbatches", "--chunks"},
               "the file says what it is of");
  return [o, &args] { return run_verify(*o, args); };
}

}  // namespace sinew::tools
