// coll: measures collectives, checks their results, and puts prediction, bound and MPI beside them.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "bench/bound.h"
#include "bench/collective_case.h"
#include "bench/memory_rate.h"
#include "bench/mpi_baseline.h"
#include "bench/repeat.h"
#include "comm/communicator.h"
#include "kernels/streaming.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "sched/collective/registry.h"
#include "tools/coll_request.h"
#include "tools/command.h"
#include "tools/device.h"
#include "tools/device_coll.h"
#include "tools/json_lines.h"
#include "tools/launcher.h"
#include "tools/selection.h"
#include "tools/session.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

using bench::CollectiveCase;
using bench::CollectiveShape;
using bench::Times;

struct Row {
  std::string algorithm;  // what ran
  bool chosen = false;    // by auto
  std::string reason;     // why, where auto chose
  Times times;
  std::int64_t wrong = -1;  // -1: not checked
  double predicted_s = 0;
};

class Bench {
 public:
  Bench(comm::Communicator& communicator, const CollOptions& options)
      : communicator_(communicator),
        options_(options),
        json_(communicator.rank() == 0 ? options.json : std::string()),
        table_({}),
        mpi_library_(options.baseline == "mpi" ? bench::mpi_library() : std::string()) {}

  // Returns the number of wrong elements.
  std::int64_t run(const CollRequest& request, const sched::Cost& own_cost) {
    own_cost_ = own_cost;
    const std::int64_t largest =
        *std::max_element(request.sizes_bytes.begin(), request.sizes_bytes.end());
    beyond_cache_ = kernels::bypasses_cache(2 * communicator_.world() * largest);
    const bool plain = std::ranges::find(request.buffers, CollectiveCase::Buffers::kPlain) !=
                       request.buffers.end();
    if (beyond_cache_ && plain) handover_rate_ = bench::measure_handover_rate(communicator_);
    table_ = Table(columns());
    for (const DType dtype : request.dtypes) {
      for (const ReduceOp reduce : request.reduces) {
        links_ = bench::measure_links(communicator_, dtype, reduce);
        for (const CollectiveCase::Buffers buffers : request.buffers) {
          if (beyond_cache_) memory_.emplace(communicator_, buffers);
          for (const sched::Collective op : request.ops) {
            // What reduces nothing is measured once.
            if (!reduces(op) && reduce != request.reduces.front()) continue;
            heading(op, dtype, reduce, buffers);
            run_op(request, op, dtype, reduce, buffers);
            print(average_line(bus_rates_));
            print_overlap();
          }
        }
      }
    }
    json_.keep();
    return wrong_;
  }

 private:
  // What no row of this run can have has no column.
  [[nodiscard]] std::vector<Column> columns() const {
    std::vector<Column> columns = {{"algorithm", longest_name() + 6, true},
                                   {"size", 9},
                                   {"count", 10},
                                   {"min us", 8},
                                   {"median us", 9},
                                   {"p99 us", 8},
                                   {"alg GB/s", 8},
                                   {"bus GB/s", 8},
                                   {"predicted us", 12},
                                   {"bound us", 8}};
    if (beyond_cache_) {
      columns.push_back({"mem GB/s", 8});
      columns.push_back({"mem %", 5});
    }
    if (handover_rate_ > 0) columns.push_back({"path %", 6});
    if (options_.baseline == "mpi") {
      columns.push_back({"MPI us", 8});
      columns.push_back({"MPI / median", 12});
    }
    if (options_.check) columns.push_back({"wrong", 5});
    return columns;
  }

  void print(const std::string& text) const {
    if (communicator_.rank() == 0) {
      fmt::print("{}", text);
      std::fflush(stdout);
    }
  }

  // A rank that needs nothing of the others, such as a broadcast's root, is ahead of them by
  // several calls of a block.
  void print_overlap() {
    if (!std::exchange(overlapped_, false)) return;
    print(
        "times below bound us: calls of a block overlap where a rank need not wait for all others; "
        "the bound is of one call by itself\n");
  }

  void heading(sched::Collective op, DType dtype, ReduceOp reduce,
               CollectiveCase::Buffers buffers) {
    const bool times = reduces(op) && options_.factor != 1;
    print(fmt::format("{}{}: {} over {}, {} {}{}, {} buffers{}\n", first_ ? "" : "\n",
                      sched::name_of(op), counted(communicator_.world(), "rank"),
                      communicator_.transport_name(), sinew::name_of(dtype), sinew::name_of(reduce),
                      times ? fmt::format(" of inputs times {}", options_.factor) : "",
                      name_of(buffers), options_.inplace ? ", in place" : ""));
    if (bench::has_parts(op) && options_.parts != "even") {
      print(fmt::format("parts: {}; predictions and bounds are of even ones and left out\n",
                        options_.parts == "one" ? "rank 0 has all" : "rank r has r + 1 shares"));
    }
    if (!mpi_library_.empty()) print(fmt::format("MPI is {}\n", mpi_library_));
    const std::string placement = communicator_.placement();
    if (!placement.empty()) print(placement + "\n");
    if (communicator_.world() == 1) {
      print("links: none, since there is one rank\n");
    } else {
      print(fmt::format(
          "links as measured: latency {}, bandwidth up to {} GB/s, reduction {} GB/s\n",
          format_seconds(links_.alpha_s()), three_digits(1e-9 / links_.least.beta_s_per_byte),
          three_digits(1e-9 / links_.gamma_s_per_byte)));
    }
    if (beyond_cache_) {
      print(
          "mem GB/s: what all ranks together copy in memory of this kind, in turns with the calls; "
          "mem %: of the least traffic at that rate\n");
    }
    if (handover_rate_ > 0 && buffers == CollectiveCase::Buffers::kPlain) {
      print(
          fmt::format("path %: of that and, for what ranks need of each other, one write and one "
                      "read more on the way, in cache at {} GB/s as measured\n",
                      three_digits(1e-9 * handover_rate_)));
    }
    print(table_.header());
    explained_.clear();
    first_ = false;
  }

  void run_op(const CollRequest& request, sched::Collective op, DType dtype, ReduceOp reduce,
              CollectiveCase::Buffers buffers) {
    std::int64_t last_count = -1;
    for (const std::int64_t bytes : request.sizes_bytes) {
      CollectiveShape shape = {
          .op = op,
          .dtype = dtype,
          .reduce = reduce,
          .count = 0,
          .world = communicator_.world(),
          .rank = communicator_.rank(),
          .root = request.schedule ? request.schedule->contract.root : options_.root,
          .inplace = options_.inplace,
          .factor = reduces(op) ? options_.factor : 1,
          .parts = bench::has_parts(op) ? request.parts : bench::Parts::kEven};
      shape.count = bench::count_for_bytes(op, dtype, shape.world, bytes);
      if (std::exchange(last_count, shape.count) == shape.count) continue;
      run_shape(request, shape, buffers);
    }
  }

  void run_shape(const CollRequest& request, const CollectiveShape& shape,
                 CollectiveCase::Buffers buffers) {
    CollectiveCase ours(communicator_, shape, buffers);
    const std::vector<std::string> names = names_for(request, shape);
    std::vector<Row> rows;
    std::vector<std::function<void()>> candidates;
    for (const std::string& name : names) {
      rows.push_back(prepare(ours, shape, name));
      candidates.emplace_back([&ours, algorithm = rows.back().algorithm] { ours.run(algorithm); });
    }
    if (request.schedule) {
      rows.push_back(prepare_own(ours, shape, *request.schedule));
      candidates.emplace_back([&] { run_own(ours, shape, *request.schedule); });
    }
    // Beside calls on ordinary buffers MPI's are on the same: where memory lies has its price, too.
    std::optional<CollectiveCase> plain;
    std::optional<bench::MpiCollective> theirs;
    if (options_.baseline == "mpi") explain_missing_mpi(shape);
    if (options_.baseline == "mpi" && bench::why_mpi_lacks(shape).empty()) {
      if (buffers != CollectiveCase::Buffers::kPlain)
        plain.emplace(communicator_, shape, CollectiveCase::Buffers::kPlain);
      CollectiveCase& place = plain ? *plain : ours;
      theirs.emplace(shape);
      candidates.emplace_back([&] { theirs->run(place.input(), place.output()); });
    }
    // In cache, memory bounds nothing.
    const bool in_cache = !kernels::bypasses_cache(bench::least_touched_bytes(shape));
    if (!in_cache) candidates.emplace_back([&] { memory_->run(); });
    const std::vector<Times> times =
        bench::time_candidates(communicator_, candidates, repeat_options(options_));
    Beside beside;
    if (theirs) beside.mpi_s = times[rows.size()].median_s;
    if (!in_cache)
      beside.memory_rate = static_cast<double>(memory_->bytes()) / times.back().median_s;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].times = times[i];
      report(shape, buffers, rows[i], beside);
    }
  }

  // Once per reason: why a column stays empty.
  void explain_missing_mpi(const CollectiveShape& shape) {
    const std::string reason = bench::why_mpi_lacks(shape);
    if (!reason.empty()) print_once(fmt::format("MPI's columns are empty: {}\n", reason));
  }

  void print_once(const std::string& line) {
    if (told_.insert(line).second) print(line);
  }

  void run_own(CollectiveCase& ours, const CollectiveShape& shape,
               const sched::Schedule& schedule) {
    communicator_.run_schedule(schedule, ours.input(), ours.output(), shape.count, shape.dtype,
                               shape.reduce);
  }

  Row prepare_own(CollectiveCase& ours, const CollectiveShape& shape,
                  const sched::Schedule& schedule) {
    Row row;
    row.algorithm = "file: " + schedule.name;
    row.predicted_s =
        bench::predicted_s(own_cost_, static_cast<double>(shape.full_bytes()), links_);
    if (options_.check) {
      ours.fill();
      run_own(ours, shape, schedule);
      count_wrong(ours, row);
    }
    return row;
  }

  void count_wrong(const CollectiveCase& ours, Row& row) {
    row.wrong = ours.count_wrong();
    communicator_.all_reduce(&row.wrong, &row.wrong, 1, DType::kI64, ReduceOp::kSum);
    wrong_ += row.wrong;
  }

  // Resolves auto, prices the algorithm, and checks its result before it is timed.
  Row prepare(CollectiveCase& ours, const CollectiveShape& shape, const std::string& name) {
    Row row;
    row.chosen = name == "auto";
    row.algorithm = name;
    if (row.chosen) {
      const auto choice = communicator_.explain(shape.op, shape.count, shape.dtype);
      row.algorithm = choice.algorithm;
      row.reason = choice.reason;
      if (!options_.selection.empty() && !row.reason.starts_with("measured")) {
        print_once(fmt::format("{} has no row of {} for {} over {}: auto goes by its own table\n",
                               options_.selection, sched::name_of(shape.op),
                               counted(shape.world, "rank"), communicator_.transport_name()));
      }
      if (options_.explain_choice && std::exchange(explained_, choice.reason) != choice.reason) {
        print(fmt::format("from {} auto takes {}: {}\n", format_bytes(shape.full_bytes()),
                          choice.algorithm, choice.reason));
      }
    }
    const sched::Algorithm& algorithm = sched::find_algorithm(shape.op, row.algorithm);
    row.predicted_s = bench::predicted_s(algorithm.cost(params_of(shape)),
                                         static_cast<double>(shape.full_bytes()), links_);
    if (options_.check) {
      ours.fill();
      ours.run(row.algorithm);
      count_wrong(ours, row);
    }
    return row;
  }

  // What was timed in turns with a row.
  struct Beside {
    std::optional<double> mpi_s;
    std::optional<double> memory_rate;  // bytes per second of all ranks together; none: in cache
  };

  void report(const CollectiveShape& shape, CollectiveCase::Buffers buffers, const Row& row,
              const Beside& beside) {
    const auto bytes = static_cast<double>(shape.full_bytes());
    const double bus = bench::bus_factor(shape.op, shape.world);
    const double rate = bytes / row.times.median_s * 1e-9;
    const double bound_s = bench::bound_s(shape.op, shape.world, bytes, links_);
    const bool even = !shape.uneven();
    const std::int64_t touched = bench::least_touched_bytes(shape);
    const bool in_cache = !beside.memory_rate;
    const double memory_bound_s = in_cache ? 0 : static_cast<double>(touched) / *beside.memory_rate;
    const double memory_fraction = memory_bound_s / row.times.median_s;
    // Ordinary buffers are not mapped by the peers.
    const bool hands_over =
        !in_cache && handover_rate_ > 0 && buffers == CollectiveCase::Buffers::kPlain;
    const bench::HandedOver handed = bench::handed_over_bytes(shape);
    const double path_bound_s =
        memory_bound_s +
        (hands_over ? static_cast<double>(handed.put_bytes + handed.fetched_bytes) / handover_rate_
                    : 0);
    const double path_fraction = path_bound_s / row.times.median_s;
    const auto us = [](double seconds) { return three_digits(seconds * 1e6); };
    std::vector<std::string> cells = {(row.chosen ? "auto: " : "") + row.algorithm,
                                      format_bytes(shape.full_bytes()),
                                      fmt::format("{}", shape.count),
                                      us(row.times.min_s),
                                      us(row.times.median_s),
                                      us(row.times.p99_s),
                                      bytes > 0 ? three_digits(rate) : "-",
                                      bus > 0 ? three_digits(rate * bus) : "-",
                                      even ? us(row.predicted_s) : "-",
                                      even ? us(bound_s) : "-"};
    if (beyond_cache_) {
      cells.push_back(in_cache ? "-" : three_digits(1e-9 * *beside.memory_rate));
      cells.push_back(in_cache ? "-" : fmt::format("{:.0f}", 100 * memory_fraction));
    }
    if (handover_rate_ > 0)
      cells.push_back(hands_over ? fmt::format("{:.0f}", 100 * path_fraction) : "-");
    if (options_.baseline == "mpi") {
      cells.push_back(beside.mpi_s ? us(*beside.mpi_s) : "-");
      cells.push_back(beside.mpi_s ? three_digits(*beside.mpi_s / row.times.median_s) : "-");
    }
    if (options_.check) cells.push_back(fmt::format("{}", row.wrong));
    print(table_.row(cells));
    overlapped_ |= even && row.times.median_s < bound_s;
    if (bytes > 0 && bus > 0) bus_rates_.push_back(rate * bus);
    JsonRecord record;
    record.add("op", sched::name_of(shape.op))
        .add("algo", row.algorithm)
        .add("chosen_by_auto", row.chosen)
        .add("reason", row.reason)
        .add("transport", communicator_.transport_name())
        .add("network_block_bytes", communicator_.network_block_bytes())
        .add("ranks", shape.world)
        .add("bytes", shape.full_bytes())
        .add("count", shape.count)
        .add("dtype", sinew::name_of(shape.dtype))
        .add("reduce", sinew::name_of(shape.reduce))
        .add("factor", shape.factor == 1 ? std::nullopt : std::optional(shape.factor))
        .add("inplace", shape.inplace)
        .add("buffers", name_of(buffers))
        .add("parts", bench::name_of(shape.parts))
        .add("t_min_us", row.times.min_s * 1e6)
        .add("t_median_us", row.times.median_s * 1e6)
        .add("t_p99_us", row.times.p99_s * 1e6)
        .add("iterations", row.times.iterations)
        .add("batch", row.times.batch)
        .add("algbw_GBps", rate)
        .add("busbw_GBps", bus > 0 ? std::optional(rate * bus) : std::nullopt)
        .add("wrong", row.wrong < 0 ? std::nullopt : std::optional(static_cast<double>(row.wrong)))
        .add("predicted_us", even ? std::optional(row.predicted_s * 1e6) : std::nullopt)
        .add("bound_us", even ? std::optional(bound_s * 1e6) : std::nullopt)
        .add("memory_GBps", in_cache ? std::nullopt : std::optional(*beside.memory_rate * 1e-9))
        .add("memory_bound_us", in_cache ? std::nullopt : std::optional(memory_bound_s * 1e6))
        .add("memory_fraction", in_cache ? std::nullopt : std::optional(memory_fraction))
        .add("path_bound_us", hands_over ? std::optional(path_bound_s * 1e6) : std::nullopt)
        .add("path_fraction", hands_over ? std::optional(path_fraction) : std::nullopt)
        .add("mpi_us", beside.mpi_s ? std::optional(*beside.mpi_s * 1e6) : std::nullopt);
    if (!mpi_library_.empty()) record.add("mpi_library", mpi_library_);
    json_.write(record);
  }

  comm::Communicator& communicator_;
  const CollOptions& options_;
  JsonLines json_;
  Table table_;
  std::string mpi_library_;  // empty: not measured
  bench::LinkModel links_;
  bool beyond_cache_ = false;                // some row's buffers are
  std::optional<bench::MemoryCopy> memory_;  // of the kind of buffers under way
  // Bytes per second of all ranks together; 0: no ordinary buffers, or none that exceed the cache.
  double handover_rate_ = 0;
  sched::Cost own_cost_;  // of the user's schedule
  std::int64_t wrong_ = 0;
  std::vector<double> bus_rates_;  // GB/s, of the rows since the last heading
  bool overlapped_ = false;        // one of those rows took less than its bound
  std::set<std::string> told_;     // lines that are printed once
  std::string explained_;          // the last reason printed
  bool first_ = true;
};

int run_on_device(comm::Communicator& communicator, const CollOptions& options,
                  const CollRequest& request) {
  agree(communicator, [&] { require_root(options.root, communicator.world()); });
  return run_device_coll(communicator, options, request);
}

int run_coll(const CollOptions& options, const Args& args) {
  const CollRequest request = parse_request(options);
  const bool on_device = wants_device(options.device, launcher_of_environment().rank == 0);
  require_fit(options, args, on_device);
  require_effect(request, args);
  use_selection(options.selection);
  keep_ranks_on_cores();
  const auto communicator =
      comm::Communicator::from_mpi({.transport = on_device ? "auto" : options.transport,
                                    .timeout_s = options.timeout_s,
                                    .copies = copies_of(options.copies)});
  require_same_options(*communicator, args);
  if (on_device) return run_on_device(*communicator, options, request);
  std::optional<Bench> bench;
  sched::Cost own_cost;
  agree(*communicator, [&] {
    require_root(options.root, communicator->world());
    check_memory(request, options, communicator->world());
    if (request.schedule)
      own_cost = prove(*request.schedule, options.schedule, communicator->world());
    for (const sched::Collective op : request.ops) {
      (void)names_for(
          request,
          {.op = op, .world = communicator->world(), .root = options.root, .parts = request.parts});
    }
    bench.emplace(*communicator, options);
  });
  const std::int64_t wrong = bench->run(request, own_cost);
  throw_if_wrong(wrong);
  return 0;
}

}  // namespace

Run declare_coll(Args& args) {
  auto o = std::make_shared<CollOptions>();
  args.option("--op", o->ops, "operations, joined by commas, or all");
  args.option("--algo", o->algorithms, "algorithms, joined by commas: auto, a name, or all");
  args.option("--bytes", o->bytes,
              "sizes of the full vector: 1M, 8:64M:x4, 1K:4K:+1K, joined by commas");
  args.option("--dtype", o->dtypes, "element types, joined by commas: " + dtype_names());
  args.option("--reduce", o->reduces, "reductions, joined by commas: " + reduce_names());
  args.option("--factor", o->factor, "of sums: every rank's input counts so many times",
              {.min = 1.0 / 64, .max = 4});
  args.choice("--parts", o->parts, {"even", "ramp", "one"},
              "of operations with parts, by their v-forms where not even: ramp: rank r has r + 1 "
              "shares; one: rank 0 has all");
  args.option("--buffers", o->buffers, "plain, symmetric, or both joined by a comma");
  args.choice("--copies", o->copies, {"auto", "slots", "pull"},
              "how large messages between ordinary buffers travel");
  args.option("--transport", o->transport, transport_help());
  args.choice("--device", o->device, kDeviceNames,
              "whose memory; auto takes a GPU where there is one and says when not; twin: the "
              "kernels on the processor");
  args.option("--protocol", o->protocol, "on a device: auto, simple, ll or ll128");
  args.option("--channels", o->channels,
              "on a device: blocks of the kernel; 0: what suits the device", {.min = 0, .max = 64});
  args.option("--root", o->root, "root of broadcast, reduce, gather and scatter", {.min = 0});
  args.flag("--inplace", o->inplace, "in place");
  args.flag("--check", o->check, "check every element of the result");
  args.choice("--baseline", o->baseline, {"none", "mpi"}, "measure this beside, in the same run");
  args.option("--selection", o->selection, "file of `sinew tune` that auto reads first");
  args.option("--schedule", o->schedule,
              "a schedule in text form (see verify): proved, then measured beside --algo");
  args.flag("--explain-choice", o->explain_choice, "say which algorithm auto takes, and why");
  args.option("--budget-ms", o->budget_ms, "timed work per row", {.min = 0.001, .max = 60000});
  args.option("--iterations", o->iterations,
              "timed calls per row, instead of --budget-ms; 0: as many as it pays for",
              {.min = 0, .max = 1000000});
  args.option("--warmup", o->warmup,
              "untimed calls before a row, beside the few that estimate its time",
              {.min = 0, .max = 1000000});
  args.option("--timeout", o->timeout_s, "seconds a rank waits for another",
              {.min = 0.1, .max = 86400});
  args.option("--json", o->json, "write JSON lines to this file");
  args.exclude("--iterations", {"--budget-ms"}, "it says how many there are");
  args.exclude("--schedule", {"--op", "--root"}, "the file says it");
  args.exclude("--schedule", {"--factor"}, "a schedule's inputs count once");
  args.exclude("--schedule", {"--parts"}, "a schedule's parts are even");
  return [o, &args] { return run_coll(*o, args); };
}

}  // namespace sinew::tools
