// verify: proves schedules: every row of the registries over ranges of ranks, or one from a file.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sched/base/error.h"
#include "sched/passes/communication.h"
#include "sched/pipeline/verify.h"
#include "sched/verify.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/json_lines.h"
#include "tools/selection.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

constexpr int kWorldMax = 256;

struct Options {
  std::string op = "all";
  std::string algorithm = "all";
  std::string worlds = "1:16";
  std::string file;
  std::string json;
  int root = 0;
  int microbatches = 8;
  int chunks_max = 2;
};

// Prints what is proved and remembers what is not.
class Report {
 public:
  explicit Report(const std::string& json)
      : json_(json),
        table_({{"operation", 14, true},
                {"schedule", 18, true},
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
                    fmt::format("proved for {} world(s)", worlds)}));
    JsonRecord record;
    record.add("op", op)
        .add("algo", name)
        .add("worlds", worlds)
        .add("ranks", world)
        .add("rounds", facts.cost.rounds)
        .add("bytes", facts.cost.bytes)
        .add("reduced", facts.cost.reduced)
        .add("credits", facts.credits)
        .add("credits_in_order", facts.credits_in_order)
        .add("same_expression", facts.same_expression);
    json_.write(record);
  }

  void proved(std::string_view name, int shapes, int ranks, const sched::PipeFacts& facts) {
    const int live = *std::max_element(facts.peak_live.begin(), facts.peak_live.end());
    fmt::print("{}",
               table_.row({std::string(kPipelineOp), std::string(name), fmt::format("{}", ranks),
                           "-", "-", "-", fmt::format("{}", facts.credits),
                           fmt::format("proved for {} shape(s), at most {} live", shapes, live)}));
    JsonRecord record;
    record.add("op", kPipelineOp)
        .add("algo", name)
        .add("shapes", shapes)
        .add("ranks", ranks)
        .add("credits", facts.credits)
        .add("peak_live", live)
        .add("messages", facts.messages);
    json_.write(record);
  }

  int finish() const {
    if (failed_ > 0) throw Error(fmt::format("{} schedule(s) are wrong", failed_));
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
      report.fail(fmt::format("{} by {} for {} ranks", sched::name_of(row.op), row.name, world),
                  failure, verdict.drawing);
      return;
    }
    ++proved;
    if (world > largest) facts = verdict.facts;
    largest = std::max(largest, world);
  }
  if (proved > 0) report.proved(sched::name_of(row.op), row.name, proved, largest, facts);
}

void verify_row(const sched::PipeAlgorithm& row, const std::vector<int>& worlds,
                const Options& options, Report& report) {
  int proved = 0;
  int largest = 0;
  sched::PipeFacts facts;
  for (const int ranks : worlds) {
    for (int chunks = 1; chunks <= options.chunks_max; ++chunks) {
      for (int microbatches = 1; microbatches <= options.microbatches; ++microbatches) {
        const sched::PipeParams params = {ranks, chunks, microbatches};
        if (!row.refuse(params).empty()) continue;
        const sched::PipeVerdict verdict = sched::verify(sched::generate(row, params));
        if (!verdict.proved()) {
          report.fail(fmt::format("pipeline {} for {} ranks, {} chunks, {} microbatches", row.name,
                                  ranks, chunks, microbatches),
                      verdict.failure, verdict.drawing);
          return;
        }
        ++proved;
        largest = std::max(largest, ranks);
        facts = verdict.facts;
      }
    }
  }
  if (proved > 0) report.proved(row.name, proved, largest, facts);
}

void verify_file(const Options& options, const AnySchedule& any, Report& report) {
  if (const auto* schedule = std::get_if<sched::Schedule>(&any)) {
    const sched::Verdict verdict = sched::verify(*schedule);
    const int world = schedule->contract.world;
    if (!verdict.proved()) return report.fail(options.file, verdict.failure, verdict.drawing);
    return report.proved(sched::name_of(schedule->contract.op), schedule->name, 1, world,
                         verdict.facts);
  }
  // Messages are not written by hand: where a file has none, they are inserted.
  const auto& written = std::get<sched::PipeSchedule>(any);
  sched::PipeVerdict verdict = sched::verify(written);
  if (!verdict.proved()) {
    const sched::PipeVerdict inserted = sched::verify(sched::insert_messages(written));
    if (inserted.proved()) verdict = inserted;
  }
  if (!verdict.proved()) return report.fail(options.file, verdict.failure, verdict.drawing);
  report.proved(written.name, 1, written.ranks, verdict.facts);
}

int run_verify(const Options& options) {
  const Selection selection = select(options.op, options.algorithm);
  const std::vector<int> worlds = parse_worlds(options.worlds, kWorldMax);
  if (!options.file.empty()) {
    const AnySchedule any = read_schedule("--file", options.file);
    Report report(options.json);
    verify_file(options, any, report);
    return report.finish();
  }
  Report report(options.json);
  for (const sched::Algorithm* row : selection.collectives)
    verify_row(*row, worlds, options.root, report);
  for (const sched::PipeAlgorithm* row : selection.pipelines)
    verify_row(*row, worlds, options, report);
  return report.finish();
}

}  // namespace

Run declare_verify(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--op", o->op, "operations joined by commas, pipeline, or all");
  args.option("--algo", o->algorithm, "algorithms and pipeline schedules joined by commas, or all");
  args.option("--world", o->worlds, "ranks: 4, 1:64, or such joined by commas");
  args.option("--root", o->root, "root of broadcast and reduce; the last rank of smaller worlds",
              {.min = 0});
  args.option("--microbatches", o->microbatches, "most microbatches of pipelines",
              {.min = 1, .max = 64});
  args.option("--chunks", o->chunks_max, "most model chunks per rank of pipelines",
              {.min = 1, .max = 8});
  args.option("--file", o->file, "prove the schedule in this text file instead");
  args.option("--json", o->json, "write JSON lines to this file");
  return [o] { return run_verify(*o); };
}

}  // namespace sinew::tools
