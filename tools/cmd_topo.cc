// topo: what this machine offers to ranks.
#include <fmt/format.h>

#include <memory>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/launcher.h"
#include "tools/machine.h"
#include "tools/session.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

// Four times the last cache of common servers' slices, and small enough to take well under a
// second.
constexpr std::int64_t kMemoryBufferBytes = std::int64_t{256} << 20;
constexpr std::int64_t kCacheBufferBytes = std::int64_t{256} << 10;

std::string limit_or_none(double value, const std::string& shown) {
  return value > 0 ? shown : "none";
}

void print_machine(const Machine& machine, const Launcher& launcher, double memory_rate,
                   double cache_rate) {
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("  {:<22}{}\n", name, value);
  };
  fmt::print("machine\n");
  line("processor", machine.processor);
  line("cores",
       fmt::format("{} ({}, {}, {})", machine.cores, counted(machine.threads, "hardware thread"),
                   counted(machine.packages, "package"),
                   counted(machine.numa_domains, "memory domain")));
  line("usable cores", fmt::format("{} by affinity", machine.usable_cores));
  line("control group",
       fmt::format("cores {}, memory {}",
                   limit_or_none(machine.cgroup_cores, three_digits(machine.cgroup_cores)),
                   limit_or_none(static_cast<double>(machine.cgroup_memory_bytes),
                                 format_bytes(machine.cgroup_memory_bytes))));
  std::string sets = "portable";
  for (const std::string& set : machine.vector_sets) sets += " " + set;
  line("instruction sets", sets);
  for (const CacheLevel& cache : machine.caches) {
    line(fmt::format("L{} cache", cache.level).c_str(),
         fmt::format("{} x {}, {} each", cache.count, format_bytes(cache.size_bytes),
                     counted(cache.cores_sharing, "core")));
  }
  line("memory", format_bytes(machine.memory_bytes));
  line("/dev/shm", fmt::format("{} free of {}", format_bytes(machine.shm_free_bytes),
                               format_bytes(machine.shm_size_bytes)));
  line("memory bandwidth",
       fmt::format("{} GB/s copying in memory, {} GB/s in cache (one core, read + written)",
                   three_digits(memory_rate * 1e-9), three_digits(cache_rate * 1e-9)));
  fmt::print("ranks\n");
  line("launched", launcher.present ? fmt::format("{} by mpirun", launcher.world)
                                    : "none: mpirun -n P starts P");
  const int together = concurrent_ranks(machine);
  line("without sharing cores",
       fmt::format("{}{}", together,
                   launcher.world > together ? "; ranks will yield while they wait" : ""));
}

// Collective: what each rank has to say, up to a line's length.
std::vector<std::string> texts_of_ranks(comm::Communicator& communicator, const std::string& own) {
  struct Line {
    char text[320];
  };
  Line line{};
  own.copy(line.text, sizeof line.text - 1);
  std::vector<Line> lines(static_cast<std::size_t>(communicator.world()));
  communicator.all_gather(&line, lines.data(), sizeof line, DType::kU8);
  std::vector<std::string> texts;
  for (const Line& one : lines) texts.emplace_back(one.text);
  return texts;
}

// Row by row: what carries the messages of a rank to each other rank.
void print_ranks(comm::Communicator& communicator, JsonLines& json) {
  struct Cell {
    char name[16];
  };
  const auto world = static_cast<std::size_t>(communicator.world());
  std::vector<Cell> mine(world);
  for (std::size_t peer = 0; peer < world; ++peer) {
    const std::string_view name = communicator.transport_to(static_cast<int>(peer));
    name.copy(mine[peer].name, sizeof mine[peer].name - 1);
  }
  std::vector<Cell> all(world * world);
  communicator.all_gather(mine.data(), all.data(), static_cast<std::int64_t>(world * sizeof(Cell)),
                          DType::kU8);
  const std::vector<std::string> reasons =
      texts_of_ranks(communicator, communicator.copies_denied());
  const std::vector<std::string> lines = texts_of_ranks(communicator, communicator.network());
  if (communicator.rank() != 0) return;
  const std::string placement = communicator.placement();
  if (!placement.empty()) fmt::print("{}\n", placement);
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (!lines[rank].empty()) fmt::print("rank {}: {}\n", rank, lines[rank]);
  }
  for (const std::string& reason : reasons) {
    if (reason.empty()) continue;
    fmt::print("{}; large messages are copied through shared memory instead (see sinew doctor)\n",
               reason);
    break;
  }
  fmt::print("transports of pairs, {}\n{:>6}", counted(communicator.world(), "rank"), "");
  for (std::size_t to = 0; to < world; ++to) fmt::print("{:>8}", to);
  fmt::print("\n");
  for (std::size_t from = 0; from < world; ++from) {
    fmt::print("{:>6}", from);
    for (std::size_t to = 0; to < world; ++to) {
      const Cell& cell = all[from * world + to];
      fmt::print("{:>8}", cell.name);
      json.write(JsonRecord()
                     .add("from", static_cast<int>(from))
                     .add("to", static_cast<int>(to))
                     .add("transport", static_cast<const char*>(cell.name)));
    }
    fmt::print("\n");
  }
}

struct Options {
  std::string json;
  std::string transport = "auto";
  bool ranks = false;
  double timeout_s = 60;
};

int run_topo(const Options& options) {
  if (options.ranks) {
    const auto communicator = comm::Communicator::from_mpi(
        {.transport = options.transport, .timeout_s = options.timeout_s});
    std::unique_ptr<JsonLines> json;
    agree(*communicator, [&] {
      json = std::make_unique<JsonLines>(communicator->rank() == 0 ? options.json : std::string());
    });
    print_ranks(*communicator, *json);
    json->keep();
    return 0;
  }
  // The machine is the same for all.
  if (launcher_of_environment().rank != 0) return 0;
  JsonLines json(options.json);
  const Machine machine = describe_machine();
  const Launcher launcher = launcher_of_environment();
  const double memory_rate = copy_bandwidth(kMemoryBufferBytes, 3);
  const double cache_rate = copy_bandwidth(kCacheBufferBytes, 200);
  print_machine(machine, launcher, memory_rate, cache_rate);
  JsonRecord record;
  record.add("processor", machine.processor)
      .add("cores", machine.cores)
      .add("usable_cores", machine.usable_cores)
      .add("cgroup_cores", machine.cgroup_cores)
      .add("memory_bytes", machine.memory_bytes)
      .add("shm_free_bytes", machine.shm_free_bytes)
      .add("vector_sets", machine.vector_sets)
      .add("memory_GBps", memory_rate * 1e-9)
      .add("cache_GBps", cache_rate * 1e-9)
      .add("ranks", launcher.world);
  for (const CacheLevel& cache : machine.caches) {
    record.add(fmt::format("l{}_bytes", cache.level), cache.size_bytes);
  }
  json.write(record);
  json.keep();
  return 0;
}

}  // namespace

Run declare_topo(Args& args) {
  auto options = std::make_shared<Options>();
  args.option("--json", options->json, "write JSON lines to this file");
  args.flag("--ranks", options->ranks, "under mpirun: which transport joins which ranks");
  args.option("--transport", options->transport, "with --ranks: " + transport_help());
  args.option("--timeout", options->timeout_s, "with --ranks: seconds a rank waits for another",
              {.min = 0.1, .max = 86400});
  args.need("--transport", "--ranks");
  args.need("--timeout", "--ranks");
  return [options] { return run_topo(*options); };
}

}  // namespace sinew::tools
