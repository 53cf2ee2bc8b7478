// CollRequest: what the options of `sinew coll` ask for, checked before any collective work: of
// host memory (cmd_coll.cc) and of a device's (device_coll.h).
//
// Never does: measure. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/collective_case.h"
#include "bench/repeat.h"
#include "comm/communicator.h"
#include "sched/collective/registry.h"
#include "sched/cost.h"
#include "sched/schedule.h"
#include "tools/args.h"

namespace sinew::tools {

struct CollOptions {
  std::string ops = "all_reduce";
  std::string algorithms = "auto";
  std::string bytes = "8:64M:x4";
  std::string dtypes = "f32";
  std::string reduces = "sum";
  std::string parts = "even";
  std::string buffers = "plain";
  std::string transport = "auto";
  std::string device = "cpu";
  std::string protocol = "auto";
  int channels = 0;
  std::string copies = "auto";
  std::string baseline = "none";
  std::string selection;
  std::string schedule;
  std::string json;
  int root = 0;
  bool explain_choice = false;
  bool inplace = false;
  bool check = false;
  double budget_ms = 100;
  int iterations = 0;
  int warmup = 1;
  double timeout_s = 60;
  double factor = 1;
};

struct CollRequest {
  std::vector<sched::Collective> ops;
  std::vector<std::string> algorithms;  // auto and names, or the one name all
  std::vector<std::int64_t> sizes_bytes;
  std::vector<DType> dtypes;
  std::vector<ReduceOp> reduces;
  bench::Parts parts = bench::Parts::kEven;
  std::vector<bench::CollectiveCase::Buffers> buffers;
  std::optional<sched::Schedule> schedule;  // the user's own, measured beside the others
};

// Throws UsageError.
[[nodiscard]] CollRequest parse_request(const CollOptions& options);

// The names to measure for one operation: `all` leaves out those that refuse this world, a name
// insists (UsageError).
[[nodiscard]] std::vector<std::string> names_for(const CollRequest& request,
                                                 const bench::CollectiveShape& shape);

// Proves a schedule before anything of it runs; the counterexample is drawn. Throws UsageError.
[[nodiscard]] sched::Cost prove(const sched::Schedule& schedule, const std::string& path,
                                int world);

// The end of a run that checked its results: an Error if any element was wrong.
void throw_if_wrong(std::int64_t elements);

// Refuses sizes whose largest case, of all ranks on this machine, its memory cannot hold.
void check_memory(const CollRequest& request, const CollOptions& options, int world);

// Refuses options that none of the operations or buffers asked for takes notice of.
void require_effect(const CollRequest& request, const Args& args);

// What only one kind of memory has is refused for the other.
void require_fit(const CollOptions& options, const Args& args, bool on_device);

[[nodiscard]] bench::RepeatOptions repeat_options(const CollOptions& options);

// The line under a table, as nccl-tests ends: the mean of these GB/s, or nothing where no row had a
// bus bandwidth. Empties `rates_gbps`.
[[nodiscard]] std::string average_line(std::vector<double>& rates_gbps);

[[nodiscard]] comm::Copies copies_of(std::string_view name);
[[nodiscard]] std::string_view name_of(bench::CollectiveCase::Buffers buffers);
[[nodiscard]] bool reduces(sched::Collective op);
[[nodiscard]] sched::Params params_of(const bench::CollectiveShape& shape);

}  // namespace sinew::tools
