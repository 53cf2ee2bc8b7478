// The interpreter of schedules as one kernel; see resident.h.
//
// A step is: wait for the slot or the message, move all pieces, tell the peer. In program order a
// step begins when the one before is complete; ranks and channels overlap each other, and a message
// waits in its slot until its receiver comes to it. A schedule that completes in order with as many
// credits as there are slots (Facts::credits_in_order) cannot deadlock, segment after segment: no
// rank's earlier segment waits for another's later one.
#include "comm/device/resident.h"

#include "comm/device/wire.h"
#include "sched/base/partition.h"

namespace sinew::comm {

constexpr unsigned kResidentThreadsMax = 512;

// The part of a slot that this channel moves in this segment, as bytes from the slot's start. Parts
// begin at multiples of 16 bytes.
struct PiecePart {
  std::int64_t begin;
  std::int64_t size;
  std::int64_t units;
};

GPU_FUNCTION std::int64_t chunk_size(const ResidentCall& call, std::uint32_t chunk) {
  const auto part = static_cast<std::int64_t>(chunk) % call.chunks_per_block;
  return partition(call.count, call.chunks_per_block, part).count *
         std::int64_t{call.element_bytes};
}

GPU_FUNCTION std::int64_t chunk_start(const ResidentCall& call, std::uint32_t chunk) {
  const std::int64_t block = static_cast<std::int64_t>(chunk) / call.chunks_per_block;
  const std::int64_t part = static_cast<std::int64_t>(chunk) % call.chunks_per_block;
  return (block * call.count + partition(call.count, call.chunks_per_block, part).offset) *
         std::int64_t{call.element_bytes};
}

GPU_FUNCTION PiecePart piece_of(const ResidentCall& call, std::int64_t size, int segment) {
  const std::int64_t units = (size + kUnitBytes - 1) / kUnitBytes;
  const Part part = partition(units, std::int64_t{call.links.channels} * call.segments,
                              std::int64_t{blockIdx.x} * call.segments + segment);
  const std::int64_t begin = part.offset * kUnitBytes;
  const std::int64_t end = (part.offset + part.count) * kUnitBytes;
  return {begin, (end < size ? end : size) - begin, part.count};
}

// Where slot `index` of a space begins; input is never written.
GPU_FUNCTION char* place_of(const ResidentCall& call, sched::Slot slot, std::uint32_t further) {
  const std::uint32_t index = slot.index() + further;
  switch (slot.space()) {
    case sched::Space::kInput:
      return const_cast<char*>(call.input) + (chunk_start(call, index) - call.input_shift);
    case sched::Space::kOutput:
      return call.output + (chunk_start(call, index) - call.output_shift);
    case sched::Space::kScratch:
      return call.scratch + index * call.scratch_stride;
  }
  return nullptr;
}

GPU_FUNCTION std::int64_t slot_size(const ResidentCall& call, sched::Slot slot,
                                    std::uint32_t further) {
  const std::uint32_t index = slot.index() + further;
  return chunk_size(call,
                    slot.space() == sched::Space::kScratch ? call.scratch_chunk[index] : index);
}

GPU_FUNCTION int bytes_left(std::int64_t size, std::int64_t unit) {
  const std::int64_t left = size - unit * kUnitBytes;
  return static_cast<int>(left < kUnitBytes ? left : kUnitBytes);
}

// Moves one piece as the step says. False when a wait was given up.
template <Protocol protocol>
GPU_FUNCTION bool move_piece(const ResidentCall& call, const sched::Step& step,
                             std::uint32_t further, const PiecePart& part, char* wire,
                             std::uint64_t message) {
  const Elements elements = {call.dtype, call.reduce, call.element_bytes};
  char* const target = place_of(call, step.target, further) + part.begin;
  const char* const source = place_of(call, step.source, further) + part.begin;
  const auto load = [&](const char* from, std::int64_t i) {
    return load_unit(from + i * kUnitBytes, bytes_left(part.size, i), elements.size_bytes);
  };
  const auto store = [&](std::int64_t i, const gpu::Bytes16& unit) {
    store_unit(target + i * kUnitBytes, unit, bytes_left(part.size, i), elements.size_bytes);
  };
  const Patience patience = {call.links, call.timeout_ns, call.flag, step.peer};
  switch (step.verb) {
    case sched::Verb::kSend:
      put_piece<protocol>(wire, message, part.units,
                          [&](std::int64_t i) { return load(source, i); });
      return true;
    case sched::Verb::kRecv:
      return take_piece<protocol>(wire, message, part.units, patience, store);
    case sched::Verb::kRecvReduce:
      return take_piece<protocol>(wire, message, part.units, patience,
                                  [&](std::int64_t i, const gpu::Bytes16& unit) {
                                    store(i, combine_units(elements, load(source, i), unit));
                                  });
    case sched::Verb::kCopy:
      for (std::int64_t i = threadIdx.x; i < part.units; i += blockDim.x) store(i, load(source, i));
      return true;
    case sched::Verb::kReduce:
      for (std::int64_t i = threadIdx.x; i < part.units; i += blockDim.x) {
        store(i, combine_units(elements, load(target, i), load(source, i)));
      }
      return true;
  }
  return true;
}

template <Protocol protocol>
GPU_FUNCTION bool run_step(const ResidentCall& call, const Counts& counts, const sched::Step& step,
                           int segment) {
  const Links& links = call.links;
  const auto channel = static_cast<int>(blockIdx.x);
  const int link = link_index(step.peer, step.lane);
  const bool sends = step.verb == sched::Verb::kSend;
  const bool receives = step.verb == sched::Verb::kRecv || step.verb == sched::Verb::kRecvReduce;
  LinkWords& here = words(links, links.rank, step.peer, step.lane, channel);
  LinkWords& there = words(links, step.peer, links.rank, step.lane, channel);

  bool failed = false;
  if (threadIdx.x == 0) {
    Patience patience = {links, call.timeout_ns, call.flag, step.peer};
    const auto slots = static_cast<std::uint64_t>(links.slots);
    if (sends && counts.sent[link] >= slots) {
      failed = !wait_for_credit(here, counts.sent[link] + 1 - slots, patience);
    }
    if (receives && protocol == Protocol::kSimple) {
      failed = !wait_for_message(here, counts.taken[link] + 1, patience);
    }
  }
  int failures = 0;
  REQUIRED(resident_step_may_begin, failures = __syncthreads_count(failed ? 1 : 0));
  if (failures != 0) return false;

  const std::uint64_t message = 1 + (sends ? counts.sent[link] : receives ? counts.taken[link] : 0);
  const int area = static_cast<int>(protocol);
  char* wire = sends      ? links.slot(area, step.peer, links.rank, step.lane, channel, message)
               : receives ? links.slot(area, links.rank, step.peer, step.lane, channel, message)
                          : nullptr;
  const sched::Slot sized = sends ? step.source : step.target;
  for (std::uint32_t i = 0; i < step.chunks && !failed; ++i) {
    const PiecePart part = piece_of(call, slot_size(call, sized, i), segment);
    failed = !move_piece<protocol>(call, step, i, part, wire, message);
    wire += wire_bytes(protocol, part.units > 1 ? part.units : 1);
  }

  REQUIRED(resident_step_is_complete, failures = __syncthreads_count(failed ? 1 : 0));
  if (failures != 0) return false;
  if (threadIdx.x == 0 && sends) {
    counts.sent[link] = message;
    if (protocol == Protocol::kSimple) {
      REQUIRED(resident_arrived, gpu::store_release_sys(&there.arrived, message));
    }
  }
  if (threadIdx.x == 0 && receives) {
    counts.taken[link] = message;
    REQUIRED(resident_released, gpu::store_release_sys(&there.released, message));
  }
  return true;
}

template <Protocol protocol>
__global__ void __launch_bounds__(kResidentThreadsMax, 1)
    resident_kernel(const __grid_constant__ ResidentCall call) {
  SHARED(std::uint64_t, sent, kLinkWorldMax * kLinkLanes);
  SHARED(std::uint64_t, taken, kLinkWorldMax * kLinkLanes);
  const Counts counts = {sent, taken};
  post_call(call);
  load_counts(call.links, counts);
  REQUIRED(resident_counts_loaded, __syncthreads());
  bool well = true;
  for (int segment = 0; segment < call.segments && well; ++segment) {
    for (int i = 0; i < call.step_count && well; ++i) {
      well = run_step<protocol>(call, counts, call.steps[i], segment);
    }
  }
  REQUIRED(resident_counts_final, __syncthreads());
  store_counts(call.links, counts);
  check_calls(call);
}

void launch_resident(const ResidentCall& call, Protocol protocol, unsigned threads,
                     device::Stream& stream) {
  const device::LaunchShape shape = {.grid = {static_cast<unsigned>(call.links.channels)},
                                     .block = {threads},
                                     .residency = device::Residency::kAllBlocks};
  switch (protocol) {
    case Protocol::kSimple:
      return device::launch(resident_kernel<Protocol::kSimple>, shape, stream, call);
    case Protocol::kLowLatency:
      return device::launch(resident_kernel<Protocol::kLowLatency>, shape, stream, call);
    case Protocol::kLines:
      return device::launch(resident_kernel<Protocol::kLines>, shape, stream, call);
  }
}

}  // namespace sinew::comm
