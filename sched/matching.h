// Matching: which Send meets which receive. The i-th Send of (source, target, lane) meets the i-th
// Recv or RecvReduce of it; nothing else decides.
//
// Never does: judge sizes or contents (verify.h), or order in time (order.h, simulate.h).
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sched/schedule.h"

namespace sinew::sched {

// One FIFO stream; sends index the source's program, receives the target's.
struct Lane {
  int source = 0;
  int target = 0;
  int lane = 0;
  std::vector<std::uint32_t> sends;
  std::vector<std::uint32_t> receives;
};

// Where a step stands in its stream. Local steps have lane -1.
struct LanePosition {
  std::int32_t lane = -1;  // into Matching::lanes
  std::uint32_t index = 0;
};

struct Matching {
  std::vector<Lane> lanes;                           // sorted by (source, target, lane)
  std::vector<std::vector<LanePosition>> positions;  // [rank][step]
};

// Every peer must be a rank of the world and no rank its own peer in a message. Streams whose ends
// differ in length are returned as they are.
[[nodiscard]] Matching match(const Schedule& schedule);

[[nodiscard]] constexpr bool is_receive(Verb verb) {
  return verb == Verb::kRecv || verb == Verb::kRecvReduce;
}

// Number of the first step of each rank when the steps of all programs are counted through, and the
// total at the end.
[[nodiscard]] std::vector<std::uint32_t> first_numbers(const Schedule& schedule);

}  // namespace sinew::sched
