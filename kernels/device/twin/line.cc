// A line is stored flag last and loaded flag first, so that other processors, too, see it whole.
#include "kernels/device/twin/line.h"

#include <ctime>

namespace sinew::twin {

namespace {

constexpr int kLanes = 32;
constexpr int kLineLanes = 8;

// The line of `lane`'s group; null when the group takes no part.
LineArgument* part_of(void* const* arguments, int lane) {
  auto* part = static_cast<LineArgument*>(arguments[lane]);
  const auto* first = static_cast<const LineArgument*>(arguments[lane / kLineLanes * kLineLanes]);
  if ((part->place == nullptr) != (first->place == nullptr))
    fail("a line of 128 bytes needs all eight lanes");
  if (part->place == nullptr) return nullptr;
  if (part->place != first->place + 2 * (lane % kLineLanes) ||
      reinterpret_cast<std::uintptr_t>(first->place) % 128 != 0) {
    fail("the lanes of a line of 128 bytes must bring its parts in order, aligned to 128");
  }
  return part;
}

void compute_store(std::uint32_t mask, void* const* arguments) {
  if (mask != ~0U) fail("store_lines: all 32 lanes of the warp must take part");
  for (int lane = 0; lane < kLanes; ++lane) {
    const LineArgument* part = part_of(arguments, lane);
    if (part == nullptr) continue;
    __atomic_store_n(part->place, part->value[0], __ATOMIC_RELAXED);
    // The flag comes last of its line because its lane does.
    __atomic_store_n(part->place + 1, part->value[1], __ATOMIC_RELEASE);
  }
}

void compute_load(std::uint32_t mask, void* const* arguments) {
  if (mask != ~0U) fail("load_lines: all 32 lanes of the warp must take part");
  for (int lane = kLanes - 1; lane >= 0; --lane) {
    LineArgument* part = part_of(arguments, lane);
    if (part == nullptr) continue;
    part->value[1] = __atomic_load_n(part->place + 1, __ATOMIC_ACQUIRE);
    part->value[0] = __atomic_load_n(part->place, __ATOMIC_RELAXED);
  }
}

}  // namespace

constinit const WarpOp kStoreLines = {"store_lines", compute_store, false};
constinit const WarpOp kLoadLines = {"load_lines", compute_load, false};

std::uint64_t nanoseconds() {
  std::timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace sinew::twin
