// p2p: latency and bandwidth of point-to-point messages between pairs of ranks.
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bench/repeat.h"
#include "comm/communicator.h"
#include "sched/base/error.h"
#include "sched/base/units.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/session.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

struct Options {
  std::string bytes = "8,64K,4M";
  std::string pairs = "neighbours";
  std::string transport = "auto";
  std::string json;
  double budget_ms = 50;
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

struct Measured {
  double latency_s = 0;  // half a round trip
  double forth_s = 0;    // low to high, back to back
  double back_s = 0;
  double both_s = 0;  // both directions at once
};

// Collective over the two ranks of `pair`.
Measured measure_pair(comm::Communicator& pair, std::int64_t bytes, double budget_s) {
  const int mine = pair.rank();
  const int peer = 1 - mine;
  std::vector<std::byte> source(static_cast<std::size_t>(bytes), std::byte{1});
  std::vector<std::byte> target(source.size(), std::byte{2});
  const auto send = [&] { pair.send(source.data(), bytes, DType::kU8, peer); };
  const auto receive = [&] { pair.recv(target.data(), bytes, DType::kU8, peer); };
  const auto one_way = [&](int from) { return [&, from] { mine == from ? send() : receive(); }; };
  const std::vector<std::function<void()>> work = {[&] {
                                                     one_way(0)();
                                                     one_way(1)();
                                                   },
                                                   one_way(0), one_way(1),
                                                   [&] {
                                                     comm::Request sent = pair.start_send(
                                                         source.data(), bytes, DType::kU8, peer);
                                                     receive();
                                                     sent.wait();
                                                   }};
  const std::vector<bench::Times> times =
      bench::time_candidates(pair, work, {.budget_s = budget_s});
  return {times[0].median_s / 2, times[1].median_s, times[2].median_s, times[3].median_s};
}

// The two ranks of the pair hand their result to the first rank of all.
Measured measure(comm::Communicator& all, Pair ranks, std::int64_t bytes, double budget_s) {
  const bool taking_part = all.rank() == ranks.first || all.rank() == ranks.second;
  Measured measured;
  {
    const auto pair = all.split(taking_part ? 0 : -1, all.rank());
    if (pair) measured = measure_pair(*pair, bytes, budget_s);
  }
  all.broadcast(&measured, &measured, sizeof measured / sizeof(double), DType::kF64, ranks.first);
  return measured;
}

int run_p2p(const Options& options) {
  const std::vector<std::int64_t> sizes_bytes = parse_byte_range(options.bytes);
  const auto communicator = comm::Communicator::from_mpi({.transport = options.transport});
  const bool first_rank = communicator->rank() == 0;
  std::unique_ptr<JsonLines> json;
  agree(*communicator, [&] {
    if (communicator->world() < 2)
      throw UsageError("p2p needs at least 2 ranks and 1 was launched");
    json = std::make_unique<JsonLines>(first_rank ? options.json : std::string());
  });

  const Table table({{"pair", 9},
                     {"size", 9},
                     {"latency us", 10},
                     {"-> GB/s", 9},
                     {"<- GB/s", 9},
                     {"both GB/s", 9}});
  if (first_rank) {
    fmt::print("{} ranks, transport {}; latency is half a round trip\n{}", communicator->world(),
               communicator->transport_name(), table.header());
  }
  for (const Pair& pair : pairs_of(communicator->world(), options.pairs)) {
    for (const std::int64_t bytes : sizes_bytes) {
      const Measured m = measure(*communicator, pair, bytes, options.budget_ms * 1e-3);
      if (!first_rank) continue;
      const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; };
      fmt::print("{}",
                 table.row({fmt::format("{} <-> {}", pair.first, pair.second), format_bytes(bytes),
                            three_digits(m.latency_s * 1e6), three_digits(rate(m.forth_s)),
                            three_digits(rate(m.back_s)), three_digits(2 * rate(m.both_s))}));
      std::fflush(stdout);
      JsonRecord record;
      record.add("transport", communicator->transport_name())
          .add("from", pair.first)
          .add("to", pair.second)
          .add("bytes", bytes)
          .add("latency_us", m.latency_s * 1e6)
          .add("forth_GBps", rate(m.forth_s))
          .add("back_GBps", rate(m.back_s))
          .add("both_GBps", 2 * rate(m.both_s));
      json->write(record);
    }
  }
  return 0;
}

}  // namespace

Run declare_p2p(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--bytes", o->bytes, "message sizes: 8, 64K, 8:4M:x4, joined by commas");
  args.choice("--pairs", o->pairs, {"neighbours", "all"}, "which pairs of ranks");
  args.option("--transport", o->transport, "transport between the ranks");
  args.option("--budget-ms", o->budget_ms, "timed work per measurement",
              {.min = 0.001, .max = 60000});
  args.option("--json", o->json, "write JSON lines to this file");
  return [o] { return run_p2p(*o); };
}

}  // namespace sinew::tools
