// MemoryRate: what the ranks of a communicator together can read from and write to memory, and what
// a collective must read and write at least.
//
// Threads: one communicator, one thread.
#pragma once

#include <cstdint>

#include "bench/collective_case.h"

namespace sinew::bench {

// What memory of one kind can do when all ranks copy at once: to be timed in turns with what it
// bounds, since the rate of a virtual machine's memory changes by half within minutes.
class MemoryCopy {
 public:
  // Collective.
  MemoryCopy(comm::Communicator& communicator, CollectiveCase::Buffers buffers);
  // Collective. Copies there and back, past the cache: what is read was stored so just before, and
  // no cache holds it, however large the cache and however many of them there are.
  void run();
  // Read plus written by one run, of all ranks together.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  comm::Communicator& communicator_;
  CollectiveCase place_;
};

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
