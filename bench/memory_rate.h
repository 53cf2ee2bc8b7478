// MemoryRate: what the ranks of a communicator together can read from and write to memory, and what
// a collective must read and write at least.
//
// Threads: one communicator, one thread.
#pragma once

#include <cstdint>

#include "bench/collective_case.h"

namespace sinew::bench {

// Collective. Bytes per second, read plus written, of all ranks copying at once between buffers
// that no cache holds: the best of several repetitions.
[[nodiscard]] double measure_memory_rate(comm::Communicator& communicator);

// Of all ranks together: every input read once and every output written once. What an algorithm
// touches beyond that, it need not.
[[nodiscard]] std::int64_t least_touched_bytes(const CollectiveShape& shape);

// What ranks that do not map each other's buffers touch beyond that, of all ranks together: what
// one needs of another is put where both can read it, once however many need it, and fetched by
// each.
struct HandedOver {
  std::int64_t put_bytes = 0;
  std::int64_t fetched_bytes = 0;
};
[[nodiscard]] HandedOver handed_over_bytes(const CollectiveShape& shape);

// Collective. Bytes per second, put plus fetched, of all ranks at once: each puts a tile and
// fetches it again, all within its own second-level cache. The best of several repetitions. A tile
// that another core fetches takes longer, so no handing over through memory is faster.
[[nodiscard]] double measure_handover_rate(comm::Communicator& communicator);

}  // namespace sinew::bench
