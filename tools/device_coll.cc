#include "tools/device_coll.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "bench/collective_case.h"
#include "bench/repeat.h"
#include "comm/bootstrap.h"
#include "comm/device/choice.h"
#include "comm/device/copies.h"
#include "kernels/device/runtime.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "sched/collective/registry.h"
#include "tools/device.h"
#include "tools/json_lines.h"
#include "tools/selection.h"
#include "tools/session.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

using bench::CollectiveCase;
using bench::CollectiveShape;
using sched::Collective;

bool has_copy_engine(Collective op) {
  return op == Collective::kAllGather || op == Collective::kBroadcast;
}

// Buffers of one case: the host's, which know the right result, and the device's, laid out alike.
class DeviceCase {
 public:
  // Collective when the copy engine is to write into the peers' results.
  DeviceCase(comm::Communicator& communicator, comm::Bootstrap& bootstrap,
             const CollectiveShape& shape, bool mapped)
      : bootstrap_(bootstrap),
        shape_(shape),
        host_(communicator, shape, CollectiveCase::Buffers::kPlain) {
    const std::size_t element = size_of(shape.dtype);
    input_bytes_ = static_cast<std::size_t>(shape.input_count()) * element;
    output_bytes_ = static_cast<std::size_t>(shape.output_count()) * element;
    if (mapped) mapped_.emplace(bootstrap, std::max<std::size_t>(output_bytes_, 1));
    const auto own = static_cast<std::size_t>(shape.rank);
    if (shape.inplace) {
      input_memory_ = device::Memory(std::max(input_bytes_, output_bytes_));
      char* all = input_memory_.as<char>();
      input_ = all + (input_bytes_ < output_bytes_ ? own * input_bytes_ : 0);
      output_ = all + (output_bytes_ < input_bytes_ ? own * output_bytes_ : 0);
    } else {
      input_memory_ = device::Memory(input_bytes_);
      output_memory_ = device::Memory(output_bytes_);
      input_ = input_memory_.as<char>();
      output_ = output_memory_.as<char>();
    }
  }
  // Collective.
  void close() {
    if (mapped_) mapped_->close(bootstrap_);
  }

  [[nodiscard]] comm::ResidentWork work() const {
    return {input_, output_, shape_.count, shape_.dtype, shape_.reduce};
  }
  void run_copies(comm::Resident& resident, device::Stream& stream) const {
    const auto size = static_cast<std::int64_t>(input_bytes_);
    if (shape_.op == Collective::kAllGather) {
      comm::all_gather_by_copies(resident, *mapped_, input_, size, stream);
    } else {
      comm::broadcast_by_copies(resident, *mapped_, input_, size, shape_.root, stream);
    }
  }
  void fill(device::Stream& stream) {
    host_.fill();
    stream.copy(input_, host_.input(), input_bytes_);
    stream.synchronize();
  }
  [[nodiscard]] std::int64_t count_wrong(bool by_copies, device::Stream& stream) {
    const char* result = by_copies ? mapped_->of(shape_.rank) : output_;
    stream.copy(host_.output(), result, output_bytes_);
    stream.synchronize();
    return host_.count_wrong();
  }

 private:
  comm::Bootstrap& bootstrap_;
  CollectiveShape shape_;
  CollectiveCase host_;
  std::size_t input_bytes_ = 0;
  std::size_t output_bytes_ = 0;
  std::optional<comm::PeerMemory> mapped_;
  device::Memory input_memory_;
  device::Memory output_memory_;
  char* input_ = nullptr;
  char* output_ = nullptr;
};

struct DeviceRow {
  std::string algorithm;
  bool chosen = false;
  bool by_copies = false;
  comm::ResidentChoice choice{};
  std::int64_t wrong = -1;  // -1: not checked

  [[nodiscard]] std::string_view protocol() const {
    return by_copies ? "copies" : name_of(choice.protocol);
  }
};

class DeviceBench {
 public:
  DeviceBench(comm::Communicator& communicator, comm::Bootstrap& bootstrap,
              const CollOptions& options, const CollRequest& request)
      : communicator_(communicator),
        bootstrap_(bootstrap),
        options_(options),
        request_(request),
        twin_(device::properties().twin),
        json_(communicator.rank() == 0 ? options.json : std::string()),
        table_({{"algorithm", longest_name() + 6, true},
                {"protocol", 8, true},
                {"size", 9},
                {"count", 10},
                {"min us", 8},
                {"median", 8},
                {"p99", 8},
                {"alg GB/s", 8},
                {"bus GB/s", 8},
                {"wrong", 5}}),
        resident_(bootstrap, options_of(options)) {}

  std::int64_t run() {
    introduce();
    for (const DType dtype : request_.dtypes) {
      for (const ReduceOp reduce : request_.reduces) {
        for (const Collective op : request_.ops) {
          run_op(op, dtype, reduce);
          print(average_line(bus_rates_));
        }
      }
    }
    resident_.close(bootstrap_);
    json_.keep();
    return wrong_;
  }

 private:
  static comm::ResidentOptions options_of(const CollOptions& options) {
    comm::ResidentOptions resident = resident_options(options.timeout_s);
    if (options.channels > 0) resident.channels = options.channels;
    return resident;
  }
  void print(const std::string& text) const {
    if (communicator_.rank() != 0) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  void introduce() const {
    if (twin_) print(fmt::format("device: {}\n", twin_notice()));
    print(fmt::format("transport {}: {}\n", comm::kCudaIpcName, resident_.transport().describe()));
  }

  void run_op(Collective op, DType dtype, ReduceOp reduce) {
    print(fmt::format("\n{}: {} over {}, {} {}, device memory{}\n", sched::name_of(op),
                      counted(communicator_.world(), "rank"), comm::kCudaIpcName,
                      sinew::name_of(dtype), sinew::name_of(reduce),
                      options_.inplace ? ", in place" : ""));
    print(table_.header());
    std::int64_t last_count = -1;
    for (const std::int64_t bytes : request_.sizes_bytes) {
      CollectiveShape shape = {.op = op,
                               .dtype = dtype,
                               .reduce = reduce,
                               .count = 0,
                               .world = communicator_.world(),
                               .rank = communicator_.rank(),
                               .root = options_.root,
                               .inplace = options_.inplace};
      shape.count = bench::count_for_bytes(op, dtype, shape.world, bytes);
      if (std::exchange(last_count, shape.count) == shape.count) continue;
      run_shape(shape);
    }
  }

  // `all` leaves out what does not run with these ranks and slots, a name insists.
  std::vector<DeviceRow> rows_for(const CollectiveShape& shape) const {
    std::vector<DeviceRow> rows;
    const auto add = [&](std::string_view name) {
      if (name == comm::kCopyEngineName) {
        if (!has_copy_engine(shape.op) || shape.inplace) {
          throw UsageError(
              fmt::format("--algo {}: copies make all_gather and broadcast only, out of place",
                          comm::kCopyEngineName));
        }
        rows.push_back({.algorithm = std::string(name), .by_copies = true});
        return;
      }
      const auto choice = comm::choose(resident_, {.op = shape.op,
                                                   .root = shape.root,
                                                   .full_bytes = shape.full_bytes(),
                                                   .algorithm = name,
                                                   .protocol = options_.protocol});
      rows.push_back(
          {.algorithm = std::string(choice.row->name), .chosen = name == "auto", .choice = choice});
    };
    for (const std::string& name : request_.algorithms) {
      if (name != "all") {
        add(name);
        continue;
      }
      add("auto");
      for (const sched::Algorithm& row : sched::algorithms()) {
        if (row.op == shape.op && resident_.takes(row, shape.root)) add(row.name);
      }
      if (has_copy_engine(shape.op) && !shape.inplace) add(comm::kCopyEngineName);
    }
    return rows;
  }

  void run_shape(const CollectiveShape& shape) {
    std::vector<DeviceRow> rows = rows_for(shape);
    const bool mapped =
        std::any_of(rows.begin(), rows.end(), [](const DeviceRow& row) { return row.by_copies; });
    DeviceCase work(communicator_, bootstrap_, shape, mapped);
    std::vector<std::function<void()>> candidates;
    for (DeviceRow& row : rows) {
      const auto run = [this, &work, &row, root = shape.root] {
        if (row.by_copies) {
          work.run_copies(resident_, stream_);
        } else {
          comm::run(resident_, row.choice, root, work.work(), stream_);
        }
        stream_.synchronize();
      };
      if (options_.check) check(work, row, run);
      candidates.emplace_back(run);
    }
    const std::vector<bench::Times> times =
        bench::time_candidates(communicator_, candidates, repeat_options(options_));
    resident_.check(stream_);
    for (std::size_t i = 0; i < rows.size(); ++i) report(shape, rows[i], times[i]);
    work.close();
  }

  void check(DeviceCase& work, DeviceRow& row, const std::function<void()>& run) {
    work.fill(stream_);
    run();
    resident_.check(stream_);
    row.wrong = work.count_wrong(row.by_copies, stream_);
    communicator_.all_reduce(&row.wrong, &row.wrong, 1, DType::kI64, ReduceOp::kSum);
    wrong_ += row.wrong;
  }

  void report(const CollectiveShape& shape, const DeviceRow& row, const bench::Times& times) {
    const double rate = static_cast<double>(shape.full_bytes()) / times.median_s * 1e-9;
    const double bus = rate * bench::bus_factor(shape.op, shape.world);
    const bool has_rate = !twin_ && shape.full_bytes() > 0;
    const auto us = [](double seconds) { return three_digits(seconds * 1e6); };
    print(table_.row({(row.chosen ? "auto: " : "") + row.algorithm, std::string(row.protocol()),
                      format_bytes(shape.full_bytes()), fmt::format("{}", shape.count),
                      us(times.min_s), us(times.median_s), us(times.p99_s),
                      has_rate ? three_digits(rate) : "-", has_rate ? three_digits(bus) : "-",
                      row.wrong < 0 ? "-" : fmt::format("{}", row.wrong)}));
    if (has_rate && bus > 0) bus_rates_.push_back(bus);
    JsonRecord record;
    record.add("op", sched::name_of(shape.op))
        .add("algo", row.algorithm)
        .add("chosen_by_auto", row.chosen)
        .add("transport", comm::kCudaIpcName)
        .add("device", device::properties().name)
        .add("twin", twin_)
        .add("protocol", row.protocol())
        .add("ranks", shape.world)
        .add("bytes", shape.full_bytes())
        .add("count", shape.count)
        .add("dtype", sinew::name_of(shape.dtype))
        .add("reduce", sinew::name_of(shape.reduce))
        .add("inplace", shape.inplace)
        .add("t_min_us", times.min_s * 1e6)
        .add("t_median_us", times.median_s * 1e6)
        .add("t_p99_us", times.p99_s * 1e6)
        .add("iterations", times.iterations)
        .add("batch", times.batch)
        .add("algbw_GBps", has_rate ? std::optional(rate) : std::nullopt)
        .add("busbw_GBps", has_rate ? std::optional(bus) : std::nullopt)
        .add("wrong", row.wrong < 0 ? std::nullopt : std::optional(static_cast<double>(row.wrong)));
    json_.write(record);
  }

  comm::Communicator& communicator_;
  comm::Bootstrap& bootstrap_;
  const CollOptions& options_;
  const CollRequest& request_;
  bool twin_;
  JsonLines json_;
  Table table_;
  comm::Resident resident_;
  device::Stream stream_;
  std::int64_t wrong_ = 0;
  std::vector<double> bus_rates_;  // GB/s, of the rows since the last heading
};

}  // namespace

int run_device_coll(comm::Communicator& communicator, const CollOptions& options,
                    const CollRequest& request) {
  const std::unique_ptr<comm::Bootstrap> bootstrap = comm::launched_bootstrap(options.timeout_s);
  agree(communicator, [&] {
    require_device(options.device == "auto" ? "cuda" : options.device);
    select_device(communicator.rank());
    if (options.protocol != "auto") static_cast<void>(comm::parse_protocol(options.protocol));
    for (const Collective op : request.ops) {
      for (const std::string& name : request.algorithms) {
        if (name == "auto" || name == "all" || name == comm::kCopyEngineName) continue;
        static_cast<void>(sched::find_algorithm(op, name));
      }
    }
  });
  std::optional<DeviceBench> bench;
  agree(communicator, [&] { bench.emplace(communicator, *bootstrap, options, request); });
  const std::int64_t wrong = bench->run();
  throw_if_wrong(wrong);
  return 0;
}

}  // namespace sinew::tools
