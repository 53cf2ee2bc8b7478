// p2p: latency and bandwidth of point-to-point messages between pairs of ranks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bench/repeat.h"
#include "comm/communicator.h"
#include "sched/base/error.h"
#include "sched/base/units.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/machine.h"
#include "tools/selection.h"
#include "tools/session.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

struct Options {
  std::string bytes = "8:4M:x8";
  std::string pairs = "neighbours";
  std::string transport = "auto";
  std::string json;
  double budget_ms = 50;
  double timeout_s = 60;
};

using Pair = std::pair<int, int>;

std::vector<Pair> pairs_of(int world, const std::string& which) {
  std::vector<Pair> pairs;
  for (int low = 0; low < world; ++low) {
    for (int high = low + 1; high < world; ++high) {
      if (which == "all" || high == low + 1) pairs.emplace_back(low, high);
    }
  }
  return pairs;
}

// Of ranks that take no part, which leave their cores to those that do.
constexpr std::chrono::milliseconds kBetweenLooks(1);

// Messages in flight together, and what they may hold.
constexpr std::int64_t kWindowMost = 64;
constexpr std::int64_t kWindowBytes = std::int64_t{4} << 20;

std::int64_t window_for(std::int64_t bytes) {
  return std::clamp(kWindowBytes / std::max<std::int64_t>(bytes, 1), std::int64_t{1}, kWindowMost);
}

// Of one message: the time of a window over its messages.
struct Measured {
  double latency_s = 0;  // half a round trip
  double forth_s = 0;    // low to high
  double back_s = 0;
  double both_s = 0;  // one in each direction at once
};

// The two ranks of a pair. As other programs of this kind do (perftest, OSU), all messages of a
// window leave from the same memory and arrive in the same: what is measured is the way, not the
// memory.
class PairCase {
 public:
  PairCase(comm::Communicator& pair, std::int64_t bytes)
      : pair_(pair),
        bytes_(bytes),
        source_(static_cast<std::size_t>(bytes), std::byte{1}),
        target_(source_.size(), std::byte{2}) {}

  // As many round trips as a window has messages: ranks leave a barrier apart by as long as one
  // message of a network takes, which must be little beside them.
  void ping_pongs() {
    for (std::int64_t i = 0; i < window_for(bytes_); ++i) {
      for (const int from : {0, 1}) {
        if (pair_.rank() == from) {
          pair_.send(source_.data(), bytes_, DType::kU8, peer());
        } else {
          pair_.recv(target_.data(), bytes_, DType::kU8, peer());
        }
      }
    }
  }

  void window(bool sends, bool receives) {
    requests_.clear();
    for (std::int64_t i = 0; i < window_for(bytes_); ++i) {
      if (receives)
        requests_.push_back(pair_.start_recv(target_.data(), bytes_, DType::kU8, peer()));
      if (sends) requests_.push_back(pair_.start_send(source_.data(), bytes_, DType::kU8, peer()));
    }
    for (comm::Request& request : requests_) request.wait();
  }

 private:
  [[nodiscard]] int peer() const { return 1 - pair_.rank(); }

  comm::Communicator& pair_;
  std::int64_t bytes_;
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
  std::vector<comm::Request> requests_;
};

// Collective over the two ranks of `pair`.
Measured measure_pair(comm::Communicator& pair, std::int64_t bytes, double budget_s) {
  PairCase both(pair, bytes);
  const bool low = pair.rank() == 0;
  const std::vector<std::function<void()>> work = {
      [&] { both.ping_pongs(); }, [&] { both.window(low, !low); }, [&] { both.window(!low, low); },
      [&] { both.window(true, true); }};
  const std::vector<bench::Times> times =
      bench::time_candidates(pair, work, {.budget_s = budget_s});
  const auto messages = static_cast<double>(window_for(bytes));
  return {times[0].median_s / (2 * messages), times[1].median_s / messages,
          times[2].median_s / messages, times[3].median_s / messages};
}

// The two ranks of the pair hand their result to all. How long they take is no concern of the
// others, whose deadline would end a run of long messages: the pair has its own.
Measured measure(comm::Communicator& all, Pair ranks, std::int64_t bytes, double budget_s) {
  const bool taking_part = all.rank() == ranks.first || all.rank() == ranks.second;
  Measured measured;
  {
    const auto pair = all.split(taking_part ? 0 : -1, all.rank());
    if (pair) measured = measure_pair(*pair, bytes, budget_s);
  }
  comm::Request told = all.start_broadcast(&measured, &measured, sizeof measured / sizeof(double),
                                           DType::kF64, ranks.first);
  while (!told.test()) std::this_thread::sleep_for(kBetweenLooks);
  return measured;
}

int run_p2p(const Options& options, const Args& args) {
  const std::vector<std::int64_t> sizes_bytes = parse_sizes(options.bytes);
  const auto communicator = comm::Communicator::from_mpi(
      {.transport = options.transport, .timeout_s = options.timeout_s});
  require_same_options(*communicator, args);
  const bool first_rank = communicator->rank() == 0;
  std::unique_ptr<JsonLines> json;
  agree(*communicator, [&] {
    if (communicator->world() < 2)
      throw UsageError("p2p needs at least 2 ranks and 1 was launched: start it with mpirun -n 2");
    const std::int64_t largest = *std::max_element(sizes_bytes.begin(), sizes_bytes.end());
    require_memory(describe_machine(), fmt::format("--bytes {}", options.bytes),
                   4.0 * static_cast<double>(std::max(largest, kWindowBytes)));
    json = std::make_unique<JsonLines>(first_rank ? options.json : std::string());
  });

  const Table table({{"pair", 9},
                     {"size", 9},
                     {"latency us", 10},
                     {"-> GB/s", 9},
                     {"<- GB/s", 9},
                     {"both GB/s", 9},
                     {"-> messages/s", 13}});
  if (first_rank) {
    fmt::print(
        "{} ranks, transport {}; latency is half a round trip, the rest has up to {} "
        "messages in flight\n{}",
        communicator->world(), communicator->transport_name(), kWindowMost, table.header());
    std::fflush(stdout);  // the first row may take a minute
  }
  for (const Pair& pair : pairs_of(communicator->world(), options.pairs)) {
    for (const std::int64_t bytes : sizes_bytes) {
      const Measured m = measure(*communicator, pair, bytes, options.budget_ms * 1e-3);
      if (!first_rank) continue;
      const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; };
      fmt::print("{}",
                 table.row({fmt::format("{} <-> {}", pair.first, pair.second), format_bytes(bytes),
                            three_digits(m.latency_s * 1e6), three_digits(rate(m.forth_s)),
                            three_digits(rate(m.back_s)), three_digits(2 * rate(m.both_s)),
                            fmt::format("{:.0f}", 1 / m.forth_s)}));
      std::fflush(stdout);
      JsonRecord record;
      record.add("transport", communicator->transport_name())
          .add("from", pair.first)
          .add("to", pair.second)
          .add("bytes", bytes)
          .add("latency_us", m.latency_s * 1e6)
          .add("forth_GBps", rate(m.forth_s))
          .add("back_GBps", rate(m.back_s))
          .add("both_GBps", 2 * rate(m.both_s))
          .add("messages_per_s", 1 / m.forth_s)
          .add("window", window_for(bytes));
      json->write(record);
    }
  }
  json->keep();
  return 0;
}

}  // namespace

Run declare_p2p(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--bytes", o->bytes, "message sizes: 8, 64K, 8:4M:x4, joined by commas");
  args.choice("--pairs", o->pairs, {"neighbours", "all"}, "which pairs of ranks");
  args.option("--transport", o->transport, transport_help());
  args.option("--budget-ms", o->budget_ms, "timed work per measurement",
              {.min = 0.001, .max = 60000});
  args.option("--timeout", o->timeout_s, "seconds a rank waits for another",
              {.min = 0.1, .max = 86400});
  args.option("--json", o->json, "write JSON lines to this file");
  return [o, &args] { return run_p2p(*o, args); };
}

}  // namespace sinew::tools
