// The two ends of a message as kernels; see messages.h. A piece is: wait for the slot or the piece,
// move it by the whole block, tell the peer.
#include "comm/device/messages.h"

#include "comm/device/wire.h"
#include "sched/base/partition.h"

namespace sinew::comm {

constexpr unsigned kMessageThreadsMax = 512;
constexpr int kMessageArea = static_cast<int>(Protocol::kSimple);

enum class End : std::uint8_t { kSends, kReceives };

GPU_FUNCTION gpu::Bytes16 size_unit(std::int64_t size_bytes) {
  const auto bits = static_cast<std::uint64_t>(size_bytes);
  return {{static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32), 0, 0}};
}
GPU_FUNCTION bool is_size(const gpu::Bytes16& unit, std::int64_t size_bytes) {
  const gpu::Bytes16 wanted = size_unit(size_bytes);
  return unit.word[0] == wanted.word[0] && unit.word[1] == wanted.word[1];
}

// Moves this channel's piece between the message and the slot, whose first unit is the size. False
// where the peer's message has another.
template <End end>
GPU_FUNCTION bool move_message(const MessageCall& call, char* slot, int segment) {
  const std::int64_t units = (call.size_bytes + kUnitBytes - 1) / kUnitBytes;
  const Part part = partition(units, std::int64_t{call.links.channels} * call.segments,
                              std::int64_t{blockIdx.x} * call.segments + segment);
  if constexpr (end == End::kSends) {
    if (threadIdx.x == 0) gpu::store16(slot, size_unit(call.size_bytes));
  } else {
    if (!is_size(gpu::load16_once(slot), call.size_bytes)) return false;
  }
  for (std::int64_t i = threadIdx.x; i < part.count; i += blockDim.x) {
    char* const place = call.data + (part.offset + i) * kUnitBytes;
    const std::int64_t left = call.size_bytes - (part.offset + i) * kUnitBytes;
    const int valid = static_cast<int>(left < kUnitBytes ? left : kUnitBytes);
    char* const wire = slot + (i + 1) * kUnitBytes;
    if constexpr (end == End::kSends) {
      gpu::store16(wire, load_unit(place, valid, call.element_bytes));
    } else {
      store_unit(place, gpu::load16_once(wire), valid, call.element_bytes);
    }
  }
  return true;
}

template <End end>
__global__ void __launch_bounds__(kMessageThreadsMax, 1)
    message_kernel(const __grid_constant__ MessageCall call) {
  const Links& links = call.links;
  const auto channel = static_cast<int>(blockIdx.x);
  constexpr bool kSends = end == End::kSends;
  LinkWords& here = words(links, links.rank, call.peer, call.lane, channel);
  LinkWords& there = words(links, call.peer, links.rank, call.lane, channel);
  const auto slots = static_cast<std::uint64_t>(links.slots);
  const std::uint64_t before = kSends ? here.sent : here.taken;
  std::uint64_t number = before;
  bool well = true;
  for (int segment = 0; segment < call.segments && well; ++segment) {
    ++number;
    bool failed = false;
    if (threadIdx.x == 0) {
      Patience patience = {links, call.timeout_ns, call.flag, call.peer};
      if (!kSends) failed = !wait_for_message(here, number, patience);
      if (kSends && number > slots) failed = !wait_for_credit(here, number - slots, patience);
    }
    int failures = 0;
    REQUIRED(message_piece_may_move, failures = __syncthreads_count(failed ? 1 : 0));
    well = failures == 0;
    if (!well) break;
    char* const slot = links.slot(kMessageArea, kSends ? call.peer : links.rank,
                                  kSends ? links.rank : call.peer, call.lane, channel, number);
    failed = !move_message<end>(call, slot, segment);
    REQUIRED(message_piece_has_moved, failures = __syncthreads_count(failed ? 1 : 0));
    well = failures == 0;
    if (threadIdx.x != 0) continue;
    if (!well) {
      abort_all(links, AbortCause::kMismatch, call.peer, call.flag);
    } else if (kSends) {
      REQUIRED(message_arrived, gpu::store_release_sys(&there.arrived, number));
    } else {
      REQUIRED(message_released, gpu::store_release_sys(&there.released, number));
    }
  }
  // Nobody but this thread's later launches reads it; the others have read it before the barriers.
  if (threadIdx.x == 0) (kSends ? here.sent : here.taken) = number;
}

namespace {

template <End end>
void launch_end(const MessageCall& call, unsigned threads, device::Stream& stream) {
  device::launch(message_kernel<end>,
                 {.grid = {static_cast<unsigned>(call.links.channels)},
                  .block = {threads},
                  .residency = device::Residency::kAllBlocks},
                 stream, call);
}

}  // namespace

void launch_send(const MessageCall& call, unsigned threads, device::Stream& stream) {
  launch_end<End::kSends>(call, threads, stream);
}

void launch_receive(const MessageCall& call, unsigned threads, device::Stream& stream) {
  launch_end<End::kReceives>(call, threads, stream);
}

}  // namespace sinew::comm
