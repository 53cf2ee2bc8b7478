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

}  // namespace sinew::bench
