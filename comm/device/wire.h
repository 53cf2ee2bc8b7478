// The wire inside kernels: busy waits that end, and one piece of a message put into or taken from a
// slot by all threads of a block.
#pragma once

#include <cstdint>

#include "comm/call.h"
#include "comm/device/links.h"
#include "comm/device/protocol.h"
#include "comm/device/unit.h"

namespace sinew::comm {

GPU_FUNCTION LinkWords& words(const Links& links, int owner, int peer, int lane, int channel) {
  return *reinterpret_cast<LinkWords*>(links.link(owner, peer, lane, channel));
}
GPU_FUNCTION std::uint64_t* abort_place(const Links& links, int owner) {
  return reinterpret_cast<std::uint64_t*>(links.memory[owner]);
}

// Counts of messages while a kernel runs, in shared memory, by peer and lane. The block's threads
// call together; a barrier follows the loading and precedes the storing.
struct Counts {
  std::uint64_t* sent;
  std::uint64_t* taken;
};
GPU_FUNCTION int link_index(int peer, int lane) { return peer * kLinkLanes + lane; }
GPU_FUNCTION void load_counts(const Links& links, const Counts& counts) {
  for (auto i = static_cast<int>(threadIdx.x); i < links.world * kLinkLanes;
       i += static_cast<int>(blockDim.x)) {
    const LinkWords& here =
        words(links, links.rank, i / kLinkLanes, i % kLinkLanes, static_cast<int>(blockIdx.x));
    counts.sent[i] = here.sent;
    counts.taken[i] = here.taken;
  }
}
GPU_FUNCTION void store_counts(const Links& links, const Counts& counts) {
  for (auto i = static_cast<int>(threadIdx.x); i < links.world * kLinkLanes;
       i += static_cast<int>(blockDim.x)) {
    LinkWords& here =
        words(links, links.rank, i / kLinkLanes, i % kLinkLanes, static_cast<int>(blockIdx.x));
    here.sent = counts.sent[i];
    here.taken = counts.taken[i];
  }
}

GPU_FUNCTION CallPost& call_post(const Links& links, int owner, int peer) {
  return *reinterpret_cast<CallPost*>(links.post(owner, peer));
}
GPU_FUNCTION void abort_all(const Links& links, AbortCause cause, int peer, std::uint64_t flag) {
  for (int r = 0; r < links.world; ++r)
    gpu::store_relaxed_sys(abort_place(links, r),
                           abort_word(cause, links.rank, peer, number_in(flag)));
}
// Whether the peer has begun a call of the same number that is another, now or in its past. No
// acquire: of what lies behind the flag nothing is read before the kernel has ended.
GPU_FUNCTION bool peer_differs(const Links& links, int peer, std::uint64_t flag) {
  const std::uint64_t other = gpu::load_relaxed_sys(&call_post(links, links.rank, peer).flag);
  return number_in(other) == number_in(flag) && other != flag;
}

// A call begins: thread r of the first block tells rank r which, unless the rank has failed: then
// what it did last stays for the report. The block's threads call together.
template <typename Call>
GPU_FUNCTION void post_call(const Call& call) {
  const auto peer = static_cast<int>(threadIdx.x);
  const Links& links = call.links;
  if (blockIdx.x != 0 || peer >= links.world || peer == links.rank) return;
  if (gpu::load_relaxed_sys(abort_place(links, links.rank)) != 0) return;
  CallPost& post = call_post(links, peer, links.rank);
  gpu::store_relaxed_sys(&post.packed, call.packed);
  gpu::store_relaxed_sys(&post.count, static_cast<std::uint64_t>(call.count));
  REQUIRED(call_posted, gpu::store_release_sys(&post.flag, call.flag));
}
// A call ends: calls that matched in size, or in which this rank only sent, may still differ.
template <typename Call>
GPU_FUNCTION void check_calls(const Call& call) {
  const auto peer = static_cast<int>(threadIdx.x);
  const Links& links = call.links;
  if (blockIdx.x != 0 || peer >= links.world || peer == links.rank) return;
  if (gpu::load_relaxed_sys(abort_place(links, links.rank)) != 0) return;
  if (peer_differs(links, peer, call.flag))
    abort_all(links, AbortCause::kMismatch, peer, call.flag);
}

// One busy wait: in which call, for whom, and since when.
struct Patience {
  const Links& links;
  std::uint64_t timeout_ns;
  std::uint64_t flag;
  int peer;
  std::uint32_t turns = 0;
  std::uint64_t since_ns = 0;
};

// To be asked in every turn of a wait. True when somebody has given up, when the peer has called
// something else, or when this wait has lasted too long: then everybody is told, so that no kernel
// outlives a dead peer by more than one deadline.
GPU_FUNCTION bool gave_up(Patience& patience) {
  constexpr std::uint32_t kTurnsBetweenLooks = 32;
  if (patience.turns++ % kTurnsBetweenLooks != 0) return false;
  const Links& links = patience.links;
  if (gpu::load_relaxed_sys(abort_place(links, links.rank)) != 0) return true;
  if (peer_differs(links, patience.peer, patience.flag)) {
    abort_all(links, AbortCause::kMismatch, patience.peer, patience.flag);
    return true;
  }
  const std::uint64_t now = gpu::nanoseconds();
  if (patience.since_ns == 0) patience.since_ns = now;
  if (now - patience.since_ns < patience.timeout_ns) return false;
  abort_all(links, AbortCause::kWaited, patience.peer, patience.flag);
  return true;
}

GPU_FUNCTION bool wait_until(const std::uint64_t* count, std::uint64_t least, Patience& patience,
                             const char* acquire) {
  while (gpu::load_acquire_sys(count, acquire) < least) {
    if (gave_up(patience)) return false;
    gpu::spin_turn();
  }
  return true;
}
// Until the link's messages have come up to that one; until the peer has used up to that one.
GPU_FUNCTION bool wait_for_message(const LinkWords& link, std::uint64_t message,
                                   Patience& patience) {
  return wait_until(&link.arrived, message, patience, "message_acquired");
}
GPU_FUNCTION bool wait_for_credit(const LinkWords& link, std::uint64_t message,
                                  Patience& patience) {
  return wait_until(&link.released, message, patience, "credit_acquired");
}

// LL: a unit is four words, each the data of one 32-bit word and the message's number above it.
GPU_FUNCTION void put_low_latency(char* place, const gpu::Bytes16& unit, std::uint64_t message) {
  auto* word = reinterpret_cast<std::uint64_t*>(place);
  UNROLL for (int i = 0; i < 4; ++i) {
    gpu::store_relaxed_sys(word + i, message << 32 | unit.word[i]);
  }
}
GPU_FUNCTION bool take_low_latency(const char* place, std::uint64_t message, Patience& patience,
                                   gpu::Bytes16& unit) {
  const auto* word = reinterpret_cast<const std::uint64_t*>(place);
  const auto number = static_cast<std::uint32_t>(message);
  UNROLL for (int i = 0; i < 4; ++i) {
    std::uint64_t value = gpu::load_relaxed_sys(word + i);
    while (static_cast<std::uint32_t>(value >> 32) != number) {
      if (gave_up(patience)) return false;
      gpu::spin_turn();
      value = gpu::load_relaxed_sys(word + i);
    }
    unit.word[i] = static_cast<std::uint32_t>(value);
  }
  return true;
}

// LL128: which unit of a piece this lane carries; the eighth lane of a line carries the number.
struct LanePlace {
  bool in_piece;  // the line has at least one unit of the piece
  bool is_number;
  std::int64_t unit;
  std::int64_t offset;  // of the lane's 16 bytes in the slot
};
GPU_FUNCTION LanePlace lane_place(std::int64_t first_line, std::int64_t units) {
  const int part = gpu::lane() % gpu::kLineLanes;
  const std::int64_t line = first_line + gpu::lane() / gpu::kLineLanes;
  return {line * kUnitsPerLine < units, part == kUnitsPerLine, line * kUnitsPerLine + part,
          line * gpu::kLineBytes + part * kUnitBytes};
}
GPU_FUNCTION gpu::Bytes16 number_unit(std::uint64_t message) {
  return {{0, 0, static_cast<std::uint32_t>(message), static_cast<std::uint32_t>(message >> 32)}};
}
constexpr int kLinesPerWarp = gpu::kWarp / gpu::kLineLanes;

// The lanes agree; false when any gave up.
GPU_FUNCTION bool take_lines(const char* place, const LanePlace& lane, std::uint64_t message,
                             Patience& patience, gpu::Bytes16& unit) {
  const gpu::Bytes16 number = number_unit(message);
  while (true) {
    unit = gpu::load_lines(lane.in_piece ? place + lane.offset : nullptr);
    const bool arrived = !lane.in_piece || !lane.is_number ||
                         (unit.word[2] == number.word[2] && unit.word[3] == number.word[3]);
    if (__all_sync(gpu::kFullMask, arrived ? 1 : 0) != 0) return true;
    if (__any_sync(gpu::kFullMask, gave_up(patience) ? 1 : 0) != 0) return false;
    gpu::spin_turn();
  }
}

// Calls from(i) for each unit i < units of this thread and puts what it gives. At least one unit is
// put, so that an empty piece arrives too.
template <Protocol protocol, typename From>
GPU_FUNCTION void put_piece(char* place, std::uint64_t message, std::int64_t units, From&& from) {
  const int threads = static_cast<int>(blockDim.x);
  const std::int64_t count = units > 1 ? units : 1;
  if constexpr (protocol == Protocol::kLines) {
    const std::int64_t step = threads / gpu::kWarp * kLinesPerWarp;
    for (std::int64_t line = gpu::warp() * kLinesPerWarp; line * kUnitsPerLine < count;
         line += step) {
      const LanePlace lane = lane_place(line, count);
      gpu::Bytes16 unit = number_unit(message);
      if (!lane.is_number) unit = lane.unit < units ? from(lane.unit) : gpu::Bytes16{};
      gpu::store_lines(lane.in_piece ? place + lane.offset : nullptr, unit);
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < count; i += threads) {
      const gpu::Bytes16 unit = i < units ? from(i) : gpu::Bytes16{};
      if constexpr (protocol == Protocol::kSimple) {
        gpu::store16(place + i * kUnitBytes, unit);
      } else {
        put_low_latency(place + i * 2 * kUnitBytes, unit, message);
      }
    }
  }
}

// Calls to(i, unit) for each unit i < units of this thread. False when the wait was given up.
template <Protocol protocol, typename To>
GPU_FUNCTION bool take_piece(const char* place, std::uint64_t message, std::int64_t units,
                             Patience patience, To&& to) {
  const int threads = static_cast<int>(blockDim.x);
  const std::int64_t count = units > 1 ? units : 1;
  gpu::Bytes16 unit;
  if constexpr (protocol == Protocol::kLines) {
    const std::int64_t step = threads / gpu::kWarp * kLinesPerWarp;
    for (std::int64_t line = gpu::warp() * kLinesPerWarp; line * kUnitsPerLine < count;
         line += step) {
      const LanePlace lane = lane_place(line, count);
      if (!take_lines(place, lane, message, patience, unit)) return false;
      if (!lane.is_number && lane.unit < units) to(lane.unit, unit);
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < count; i += threads) {
      if constexpr (protocol == Protocol::kSimple) {
        if (i < units) to(i, gpu::load16_once(place + i * kUnitBytes));
      } else {
        if (!take_low_latency(place + i * 2 * kUnitBytes, message, patience, unit)) return false;
        if (i < units) to(i, unit);
      }
    }
  }
  return true;
}

}  // namespace sinew::comm
