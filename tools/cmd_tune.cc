// tune: measures every algorithm of every operation on these ranks, writes the table that `auto`
// reads, and says where the times do not fit each other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>

#include "bench/collective_case.h"
#include "bench/repeat.h"
#include "comm/communicator.h"
#include "comm/selection_file.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "sched/collective/registry.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/guidelines.h"
#include "tools/json_lines.h"
#include "tools/machine.h"
#include "tools/output.h"
#include "tools/selection.h"
#include "tools/session.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

using comm::SelectionFile;

// A challenger that is not faster than the algorithm of the size before by this does not replace
// it: the table would follow the noise.
constexpr double kClearly = 0.95;

struct Options {
  std::string ops = "all";
  std::string bytes = "8:16M:x4";
  std::string dtype = "f32";
  std::string out = "selection.txt";
  std::string transport = "auto";
  std::string json;
  double budget_ms = 20;
  double tolerance = 1.1;
  double timeout_s = 60;
};

struct Measured {
  std::string algorithm;
  double seconds = 0;
};

// All algorithms at one size, the fastest first.
struct Cell {
  std::int64_t bytes = 0;
  std::vector<Measured> algorithms;
};

// The chosen algorithm of each size, with borders halfway, on the scale of factors, between sizes.
std::vector<SelectionFile::Row> rows_of(sched::Collective op, int world, std::string_view transport,
                                        const std::vector<Cell>& cells) {
  std::vector<SelectionFile::Row> rows;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Measured chosen = cells[i].algorithms.front();
    for (const Measured& candidate : cells[i].algorithms) {
      const bool before = !rows.empty() && rows.back().algorithm == candidate.algorithm;
      if (before && chosen.seconds > kClearly * candidate.seconds) chosen = candidate;
    }
    if (!rows.empty() && rows.back().algorithm != chosen.algorithm) {
      rows.back().most_bytes = static_cast<std::int64_t>(
          std::sqrt(static_cast<double>(cells[i - 1].bytes) * static_cast<double>(cells[i].bytes)));
    }
    if (rows.empty() || rows.back().algorithm != chosen.algorithm)
      rows.push_back(
          {op, world, SelectionFile::kAnyBytes, chosen.algorithm, std::string(transport), {}});
  }
  return rows;
}

class Tuner {
 public:
  Tuner(comm::Communicator& communicator, const Options& options, SelectionFile file)
      : communicator_(communicator),
        options_(options),
        file_(std::move(file)),
        out_("--out", communicator.rank() == 0 ? options.out : std::string()),
        json_(communicator.rank() == 0 ? options.json : std::string()),
        table_({{"operation", 14, true},
                {"size", 9},
                {"fastest", longest_name(), true},
                {"us", 8},
                {"next", longest_name(), true},
                {"us", 8},
                {"of", 3}}) {}

  void run(const std::vector<sched::Collective>& ops, const std::vector<std::int64_t>& sizes,
           DType dtype) {
    print(fmt::format("{} over {}, {}\n{}", counted(communicator_.world(), "rank"),
                      communicator_.transport_name(), name_of(dtype), table_.header()));
    for (const sched::Collective op : ops) {
      std::vector<Cell> cells;
      std::int64_t last_count = -1;
      for (const std::int64_t bytes : sizes) {
        const std::int64_t count = bench::count_for_bytes(op, dtype, communicator_.world(), bytes);
        if (std::exchange(last_count, count) == count) continue;
        cells.push_back(measure(op, dtype, bytes, count));
        times_[op][bytes] = cells.back().algorithms.front().seconds;
        fastest_[op][bytes] = cells.back().algorithms.front().algorithm;
      }
      file_.replace(rows_of(op, communicator_.world(), communicator_.transport_name(), cells));
    }
    std::vector<Violation> found = violations(times_, options_.tolerance);
    std::erase_if(found, [&](Violation& violation) { return !holds_again(violation, dtype); });
    if (communicator_.rank() == 0) finish(found);
  }

 private:
  void print(const std::string& text) const {
    if (communicator_.rank() != 0) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  Cell measure(sched::Collective op, DType dtype, std::int64_t bytes, std::int64_t count) {
    const int world = communicator_.world();
    bench::CollectiveCase work(
        communicator_,
        {.op = op, .dtype = dtype, .count = count, .world = world, .rank = communicator_.rank()},
        bench::CollectiveCase::Buffers::kPlain);
    Cell cell = {.bytes = bytes, .algorithms = {}};
    std::vector<std::function<void()>> candidates;
    for (const sched::Algorithm& row : sched::algorithms()) {
      if (row.op != op || !row.refuse({.world = world}).empty()) continue;
      cell.algorithms.push_back({std::string(row.name)});
      candidates.emplace_back([&work, name = row.name] { work.run(name); });
    }
    const std::vector<bench::Times> times =
        bench::time_candidates(communicator_, candidates, {.budget_s = options_.budget_ms * 1e-3});
    for (std::size_t i = 0; i < times.size(); ++i) cell.algorithms[i].seconds = times[i].median_s;
    std::stable_sort(cell.algorithms.begin(), cell.algorithms.end(),
                     [](const Measured& a, const Measured& b) { return a.seconds < b.seconds; });
    report(op, dtype, cell);
    return cell;
  }

  void report(sched::Collective op, DType dtype, const Cell& cell) {
    const auto us = [](double seconds) { return three_digits(seconds * 1e6); };
    const Measured& first = cell.algorithms.front();
    const bool alone = cell.algorithms.size() == 1;
    print(table_.row({std::string(sched::name_of(op)), format_bytes(cell.bytes), first.algorithm,
                      us(first.seconds), alone ? "-" : cell.algorithms[1].algorithm,
                      alone ? "-" : us(cell.algorithms[1].seconds),
                      fmt::format("{}", cell.algorithms.size())}));
    for (const Measured& measured : cell.algorithms) {
      JsonRecord record;
      record.add("op", sched::name_of(op))
          .add("algo", measured.algorithm)
          .add("transport", communicator_.transport_name())
          .add("ranks", communicator_.world())
          .add("bytes", cell.bytes)
          .add("dtype", name_of(dtype))
          .add("t_median_us", measured.seconds * 1e6);
      json_.write(record);
    }
  }

  // The two sides of a guideline were measured at different times, on a machine that changes
  // meanwhile, and the fastest of many looks faster than it is: both are measured again, in turns.
  bool holds_again(Violation& violation, DType dtype) {
    std::vector<Term> terms = {violation.taken};
    terms.insert(terms.end(), violation.allowed.begin(), violation.allowed.end());
    const int world = communicator_.world();
    std::vector<std::unique_ptr<bench::CollectiveCase>> cases;
    std::vector<std::function<void()>> candidates;
    for (const Term& term : terms) {
      const std::int64_t count = bench::count_for_bytes(term.op, dtype, world, term.bytes);
      cases.push_back(std::make_unique<bench::CollectiveCase>(
          communicator_,
          bench::CollectiveShape{.op = term.op,
                                 .dtype = dtype,
                                 .count = count,
                                 .world = world,
                                 .rank = communicator_.rank()},
          bench::CollectiveCase::Buffers::kPlain));
      candidates.emplace_back(
          [work = cases.back().get(), name = fastest_[term.op][term.bytes]] { work->run(name); });
    }
    const std::vector<bench::Times> times =
        bench::time_candidates(communicator_, candidates, {.budget_s = options_.budget_ms * 1e-3});
    violation.taken_s = times.front().median_s;
    violation.allowed_s = 0;
    for (std::size_t i = 1; i < terms.size(); ++i)
      violation.allowed_s += static_cast<double>(terms[i].calls) * times[i].median_s;
    return violation.taken_s > options_.tolerance * violation.allowed_s;
  }

  void finish(const std::vector<Violation>& found) {
    out_.keep(file_.print());
    fmt::print("\nwritten to {}; auto reads it with --selection {} or {}={}\n", options_.out,
               options_.out, comm::kSelectionVariable, options_.out);
    fmt::print("{} of the guidelines by more than {} times, measured again in turns\n",
               counted(static_cast<std::int64_t>(found.size()), "violation"), options_.tolerance);
    for (const Violation& violation : found) {
      fmt::print("  {} at {}: {} where {} are allowed\n", violation.guideline,
                 format_bytes(violation.taken.bytes), format_seconds(violation.taken_s),
                 format_seconds(violation.allowed_s));
      JsonRecord record;
      record.add("guideline", violation.guideline)
          .add("ranks", communicator_.world())
          .add("bytes", violation.taken.bytes)
          .add("taken_us", violation.taken_s * 1e6)
          .add("allowed_us", violation.allowed_s * 1e6);
      json_.write(record);
    }
    json_.keep();
  }

  comm::Communicator& communicator_;
  const Options& options_;
  SelectionFile file_;
  Output out_;
  JsonLines json_;
  Table table_;
  TimesByOp times_;
  std::map<sched::Collective, std::map<std::int64_t, std::string>> fastest_;  // by bytes
};

// What the file holds already: rows of other numbers of ranks and operations stay.
SelectionFile read_before(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return {};
  return {read_text("--out", path), fmt::format("--out '{}'", path)};
}

int run_tune(const Options& options, const Args& args) {
  const std::vector<sched::Collective> ops = parse_collectives(options.ops);
  std::vector<std::int64_t> sizes = parse_sizes(options.bytes);
  std::sort(sizes.begin(), sizes.end());
  const DType dtype = in_option("--dtype", [&] { return parse_dtype(options.dtype); });
  keep_ranks_on_cores();
  const auto communicator = comm::Communicator::from_mpi(
      {.transport = options.transport, .timeout_s = options.timeout_s});
  require_same_options(*communicator, args);
  std::unique_ptr<Tuner> tuner;
  agree(*communicator, [&] {
    if (communicator->world() < 2)
      throw UsageError("tune needs at least 2 ranks and 1 was launched: start it with mpirun -n 2");
    require_memory(describe_machine(), fmt::format("--bytes {}", options.bytes),
                   2.0 * communicator->world() * static_cast<double>(sizes.back()));
    SelectionFile before;
    if (communicator->rank() == 0) {
      // Found out now rather than after minutes of measuring.
      const Output looked_at("--out", options.out);
      require_different("--out", options.out, "--json", options.json);
      before = read_before(options.out);
    }
    tuner = std::make_unique<Tuner>(*communicator, options, std::move(before));
  });
  tuner->run(ops, sizes, dtype);
  return 0;
}

}  // namespace

Run declare_tune(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--op", o->ops, "operations, joined by commas, or all");
  args.option("--bytes", o->bytes, "sizes of the full vector to measure");
  args.option("--dtype", o->dtype, "element type: " + dtype_names());
  args.option("--out", o->out,
              "the table; rows of other numbers of ranks and transports in it stay");
  args.option("--tolerance", o->tolerance, "times by which a guideline may be exceeded",
              {.min = 1, .max = 1000});
  args.option("--transport", o->transport, transport_help());
  args.option("--budget-ms", o->budget_ms, "timed work per algorithm and size",
              {.min = 0.001, .max = 60000});
  args.option("--timeout", o->timeout_s, "seconds a rank waits for another",
              {.min = 0.1, .max = 86400});
  args.option("--json", o->json, "write JSON lines to this file");
  return [o, &args] { return run_tune(*o, args); };
}

}  // namespace sinew::tools
