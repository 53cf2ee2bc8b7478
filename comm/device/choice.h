// Choice: which algorithm and protocol a collective on device memory takes, by name or by itself.
//
// Never does: measure. The bounds below are those at which NCCL's literature changes over (Hu et
// al., "Demystifying NCCL", 2025); they were not measured here, where no GPU was within reach.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/device/protocol.h"
#include "comm/device/resident.h"

namespace sinew::comm {

// Full vectors up to here take the low-latency protocol, up to the second bound lines.
inline constexpr std::int64_t kLowLatencyBytes = 64 * 1024;
inline constexpr std::int64_t kLinesBytes = 4 * 1024 * 1024;
// All-reduces up to here send everything to everybody.
inline constexpr std::int64_t kOneShotBytes = 32 * 1024;

struct ResidentChoice {
  const sched::Algorithm* row = nullptr;
  const SmallKernel* kernel = nullptr;  // set: it runs the row
  Protocol protocol = Protocol::kSimple;
};

struct ResidentAsk {
  sched::Collective op = sched::Collective::kAllReduce;
  int root = 0;
  std::int64_t full_bytes = 0;          // of the operation's full vector
  std::string_view algorithm = "auto";  // or a row's name
  std::string_view protocol = "auto";   // or a protocol's name
};

// The same on all ranks. Throws UsageError on names that do not exist and rows that do not run.
[[nodiscard]] ResidentChoice choose(const Resident& resident, const ResidentAsk& ask);

void run(Resident& resident, const ResidentChoice& choice, int root, const ResidentWork& work,
         device::Stream& stream);

// Throws UsageError naming the legal names.
[[nodiscard]] Protocol parse_protocol(std::string_view name);

}  // namespace sinew::comm
