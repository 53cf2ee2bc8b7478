#include "bench/memory_rate.h"

#include <functional>
#include <vector>

#include "bench/repeat.h"
#include "kernels/reduce.h"

namespace sinew::bench {

namespace {

// Each way, of one rank: takes a thousand times as long as the meeting at the end.
constexpr std::int64_t kCopiedBytes = std::int64_t{8} << 20;
constexpr double kBudget_s = 0.05;
// What a stage's tile holds (comm/stage.cc), so often that the meeting at the end is nothing.
constexpr std::int64_t kHandedBytes = std::int64_t{128} << 10;
constexpr int kHandedTimes = 32;

// Ranks whose input, or output, is something: one where the operation has a root there.
int ranks_with(const CollectiveShape& shape, bool at_root_only) {
  return at_root_only ? 1 : shape.world;
}

}  // namespace

MemoryCopy::MemoryCopy(comm::Communicator& communicator, CollectiveCase::Buffers buffers)
    : communicator_(communicator),
      place_(communicator,
             {.dtype = DType::kU8,
              .count = kCopiedBytes,
              .world = communicator.world(),
              .rank = communicator.rank()},
             buffers) {}

void MemoryCopy::run() {
  void* const there = place_.output();
  void* const back = place_.input();
  kernels::copy(there, back, kCopiedBytes, kernels::Stores::kPastCache);
  kernels::copy(back, there, kCopiedBytes, kernels::Stores::kPastCache);
  communicator_.barrier();  // a rank that waits for a core counts, too
}

std::int64_t MemoryCopy::bytes() const { return 4 * kCopiedBytes * communicator_.world(); }

double measure_handover_rate(comm::Communicator& communicator) {
  const auto size = static_cast<std::size_t>(kHandedBytes);
  const std::vector<std::byte> source(size, std::byte{1});
  std::vector<std::byte> between(size);
  std::vector<std::byte> target(size);
  const std::function<void()> hand_over = [&] {
    for (int time = 0; time < kHandedTimes; ++time) {
      kernels::copy(between.data(), source.data(), kHandedBytes, kernels::Stores::kCached);
      kernels::copy(target.data(), between.data(), kHandedBytes, kernels::Stores::kCached);
    }
    communicator.barrier();  // a rank that waits for a core counts, too
  };
  const Times times =
      time_candidates(communicator, {&hand_over, 1}, {.budget_s = kBudget_s}).front();
  return 2.0 * static_cast<double>(kHandedBytes) * kHandedTimes * communicator.world() /
         times.min_s;
}

HandedOver handed_over_bytes(const CollectiveShape& shape) {
  using sched::Collective;
  const std::int64_t full = shape.full_bytes();
  const std::int64_t others = shape.world - 1;
  if (others == 0) return {};
  switch (shape.op) {
    case Collective::kAllReduce:  // parts to those that sum them, sums to all
      return {.put_bytes = others * full + full, .fetched_bytes = 2 * others * full};
    case Collective::kAllGather:
    case Collective::kBroadcast:
      return {.put_bytes = full, .fetched_bytes = others * full};
    case Collective::kReduceScatter:
    case Collective::kReduce:
    case Collective::kAllToAll:
      return {.put_bytes = others * full, .fetched_bytes = others * full};
    case Collective::kGather:
    case Collective::kScatter:
      return {.put_bytes = full - full / shape.world, .fetched_bytes = full - full / shape.world};
    case Collective::kBarrier:
      return {};
  }
  __builtin_unreachable();
}

std::int64_t least_touched_bytes(const CollectiveShape& any) {
  CollectiveShape shape = any;
  shape.parts = Parts::kEven;  // all parts together are as many elements, however they are cut
  using sched::Collective;
  const bool from_root = shape.op == Collective::kBroadcast || shape.op == Collective::kScatter;
  const bool to_root = shape.op == Collective::kReduce || shape.op == Collective::kGather;
  const std::int64_t elements = shape.input_count() * ranks_with(shape, from_root) +
                                shape.output_count() * ranks_with(shape, to_root);
  return elements * static_cast<std::int64_t>(size_of(shape.dtype));
}

}  // namespace sinew::bench
