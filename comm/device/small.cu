// One-shot and two-shot all-reduce as kernels of their own: the schedules of the same names in
// sched, without a wait per step. Each thread sends a unit to all peers, then sums that unit over
// all ranks in the order of ranks, so that only the credits are waited for by the block.
#include <array>

#include "comm/device/resident.h"
#include "comm/device/wire.h"
#include "sched/base/partition.h"

namespace sinew::comm {

constexpr unsigned kSmallThreadsMax = 512;
constexpr int kSmallLane = 0;
constexpr int kSmallArea = static_cast<int>(Protocol::kLowLatency);

// A part of the vector, in bytes from its start; `units` units, the last perhaps partly used.
struct SmallPart {
  std::int64_t begin;
  std::int64_t size;
  std::int64_t units;
};

// Chunk `chunk` of `chunks`, of it this channel's part in this segment.
GPU_FUNCTION SmallPart small_part(const ResidentCall& call, int chunks, int chunk, int segment) {
  const auto element = std::int64_t{call.element_bytes};
  const Part elements = partition(call.count, chunks, chunk);
  const std::int64_t size = elements.count * element;
  const Part units = partition((size + kUnitBytes - 1) / kUnitBytes,
                               std::int64_t{call.links.channels} * call.segments,
                               std::int64_t{blockIdx.x} * call.segments + segment);
  const std::int64_t begin = units.offset * kUnitBytes;
  const std::int64_t end = begin + units.count * kUnitBytes;
  return {elements.offset * element + begin, (end < size ? end : size) - begin, units.count};
}

// One round of messages: one to and one from every peer. Thread r keeps the counts of peer r.
class SmallRound {
 public:
  GPU_FUNCTION SmallRound(const ResidentCall& call, const Counts& counts)
      : call_(call), counts_(counts), channel_(static_cast<int>(blockIdx.x)) {}

  // Waits until the peers have released what lies in the slots; false when given up.
  GPU_FUNCTION bool slots_are_free() const {
    const auto slots = static_cast<std::uint64_t>(call_.links.slots);
    bool failed = false;
    if (has_peer() && counts_.sent[own_link()] >= slots) {
      const auto peer = static_cast<int>(threadIdx.x);
      Patience patience = {call_.links, call_.timeout_ns, call_.flag, peer};
      const LinkWords& here = words(call_.links, call_.links.rank, peer, kSmallLane, channel_);
      failed = !wait_for_credit(here, counts_.sent[own_link()] + 1 - slots, patience);
    }
    int failures = 0;
    REQUIRED(small_slots_free, failures = __syncthreads_count(failed ? 1 : 0));
    return failures == 0;
  }

  GPU_FUNCTION void put(int peer, std::int64_t i, const gpu::Bytes16& unit) const {
    const Links& links = call_.links;
    const std::uint64_t message = counts_.sent[link_index(peer, kSmallLane)] + 1;
    char* slot = links.slot(kSmallArea, peer, links.rank, kSmallLane, channel_, message);
    put_low_latency(slot + i * 2 * kUnitBytes, unit, message);
  }
  GPU_FUNCTION bool take(int peer, std::int64_t i, gpu::Bytes16& unit) const {
    const Links& links = call_.links;
    const std::uint64_t message = counts_.taken[link_index(peer, kSmallLane)] + 1;
    const char* slot = links.slot(kSmallArea, links.rank, peer, kSmallLane, channel_, message);
    Patience patience = {links, call_.timeout_ns, call_.flag, peer};
    return take_low_latency(slot + i * 2 * kUnitBytes, message, patience, unit);
  }

  // Unit i summed over all ranks in their order; `own` is this rank's.
  GPU_FUNCTION bool sum(std::int64_t i, const gpu::Bytes16& own, const Elements& elements,
                        gpu::Bytes16& total) const {
    for (int r = 0; r < call_.links.world; ++r) {
      gpu::Bytes16 unit = own;
      if (r != call_.links.rank && !take(r, i, unit)) return false;
      total = r == 0 ? unit : combine_units(elements, total, unit);
    }
    return true;
  }

  // Ends the round when all threads have taken all that came; false when any gave up.
  GPU_FUNCTION bool release(bool failed) const {
    int failures = 0;
    REQUIRED(small_messages_used, failures = __syncthreads_count(failed ? 1 : 0));
    if (failures != 0) return false;
    if (has_peer()) {
      ++counts_.sent[own_link()];
      const std::uint64_t message = ++counts_.taken[own_link()];
      LinkWords& there =
          words(call_.links, static_cast<int>(threadIdx.x), call_.links.rank, kSmallLane, channel_);
      REQUIRED(small_released, gpu::store_release_sys(&there.released, message));
    }
    return true;
  }

 private:
  GPU_FUNCTION bool has_peer() const {
    return threadIdx.x < static_cast<unsigned>(call_.links.world) &&
           threadIdx.x != static_cast<unsigned>(call_.links.rank);
  }
  GPU_FUNCTION int own_link() const {
    return link_index(static_cast<int>(threadIdx.x), kSmallLane);
  }

  const ResidentCall& call_;
  const Counts& counts_;
  int channel_;
};

GPU_FUNCTION gpu::Bytes16 load_input(const ResidentCall& call, const SmallPart& part,
                                     std::int64_t i, int element_bytes) {
  return load_unit(call.input + part.begin + i * kUnitBytes,
                   static_cast<int>(part.size - i * kUnitBytes), element_bytes);
}
GPU_FUNCTION void store_output(const ResidentCall& call, const SmallPart& part, std::int64_t i,
                               const gpu::Bytes16& unit, int element_bytes) {
  store_unit(call.output + part.begin + i * kUnitBytes, unit,
             static_cast<int>(part.size - i * kUnitBytes), element_bytes);
}

// Every rank sends its part to all and sums all.
GPU_FUNCTION bool one_shot_segment(const ResidentCall& call, const Elements& elements,
                                   const Counts& counts, int segment) {
  const SmallRound round(call, counts);
  if (!round.slots_are_free()) return false;
  const SmallPart part = small_part(call, 1, 0, segment);
  const int world = call.links.world;
  bool failed = false;
  for (std::int64_t i = threadIdx.x; i < part.units && !failed; i += blockDim.x) {
    const gpu::Bytes16 own = load_input(call, part, i, elements.size_bytes);
    for (int r = 1; r < world; ++r) round.put((call.links.rank + r) % world, i, own);
    gpu::Bytes16 total{};
    failed = !round.sum(i, own, elements, total);
    if (!failed) store_output(call, part, i, total, elements.size_bytes);
  }
  return round.release(failed);
}

// Every rank sums one chunk,
GPU_FUNCTION bool scatter_chunks(const ResidentCall& call, const Elements& elements,
                                 const Counts& counts, int segment) {
  const SmallRound round(call, counts);
  const int world = call.links.world;
  if (!round.slots_are_free()) return false;
  for (int r = 1; r < world; ++r) {
    const int peer = (call.links.rank + r) % world;
    const SmallPart part = small_part(call, world, peer, segment);
    for (std::int64_t i = threadIdx.x; i < part.units; i += blockDim.x) {
      round.put(peer, i, load_input(call, part, i, elements.size_bytes));
    }
  }
  const SmallPart mine = small_part(call, world, call.links.rank, segment);
  bool failed = false;
  for (std::int64_t i = threadIdx.x; i < mine.units && !failed; i += blockDim.x) {
    gpu::Bytes16 total{};
    failed = !round.sum(i, load_input(call, mine, i, elements.size_bytes), elements, total);
    if (!failed) store_output(call, mine, i, total, elements.size_bytes);
  }
  return round.release(failed);
}

// and sends it to all. The thread that reads a unit of it back has written it.
GPU_FUNCTION bool gather_chunks(const ResidentCall& call, const Elements& elements,
                                const Counts& counts, int segment) {
  const SmallRound round(call, counts);
  const int world = call.links.world;
  if (!round.slots_are_free()) return false;
  const SmallPart mine = small_part(call, world, call.links.rank, segment);
  for (std::int64_t i = threadIdx.x; i < mine.units; i += blockDim.x) {
    const gpu::Bytes16 total =
        load_unit(call.output + mine.begin + i * kUnitBytes,
                  static_cast<int>(mine.size - i * kUnitBytes), elements.size_bytes);
    for (int r = 1; r < world; ++r) round.put((call.links.rank + r) % world, i, total);
  }
  bool failed = false;
  for (int r = 1; r < world && !failed; ++r) {
    const int peer = (call.links.rank + r) % world;
    const SmallPart part = small_part(call, world, peer, segment);
    for (std::int64_t i = threadIdx.x; i < part.units && !failed; i += blockDim.x) {
      gpu::Bytes16 unit;
      failed = !round.take(peer, i, unit);
      if (!failed) store_output(call, part, i, unit, elements.size_bytes);
    }
  }
  return round.release(failed);
}

enum class Shots : std::uint8_t { kOne, kTwo };

template <Shots shots>
__global__ void __launch_bounds__(kSmallThreadsMax, 1)
    small_all_reduce_kernel(const __grid_constant__ ResidentCall call) {
  SHARED(std::uint64_t, sent, kLinkWorldMax * kLinkLanes);
  SHARED(std::uint64_t, taken, kLinkWorldMax * kLinkLanes);
  const Counts counts = {sent, taken};
  const Elements elements = {call.dtype, call.reduce, call.element_bytes};
  post_call(call);
  load_counts(call.links, counts);
  REQUIRED(small_counts_loaded, __syncthreads());
  bool well = true;
  for (int segment = 0; segment < call.segments && well; ++segment) {
    if constexpr (shots == Shots::kOne) {
      well = one_shot_segment(call, elements, counts, segment);
    } else {
      well = scatter_chunks(call, elements, counts, segment) &&
             gather_chunks(call, elements, counts, segment);
    }
  }
  REQUIRED(small_counts_final, __syncthreads());
  store_counts(call.links, counts);
  check_calls(call);
}

namespace {

template <Shots shots>
void launch_small(const ResidentCall& call, unsigned threads, device::Stream& stream) {
  const device::LaunchShape shape = {.grid = {static_cast<unsigned>(call.links.channels)},
                                     .block = {threads},
                                     .residency = device::Residency::kAllBlocks};
  device::launch(small_all_reduce_kernel<shots>, shape, stream, call);
}

}  // namespace

std::span<const SmallKernel> small_kernels() {
  static constexpr std::array kTable = {
      SmallKernel{"one_shot", sched::Collective::kAllReduce, launch_small<Shots::kOne>},
      SmallKernel{"two_shot", sched::Collective::kAllReduce, launch_small<Shots::kTwo>},
  };
  return kTable;
}

}  // namespace sinew::comm
