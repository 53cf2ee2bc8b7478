#include "kernels/device/twin/warp_functions.h"

namespace sinew::twin {

namespace {

constexpr int kLanes = 32;

// chooses returns the lane to read from. Reading a lane outside the mask is undefined on a device:
// all ones (a NaN).
template <typename Choose>
void compute_shuffle(std::uint32_t mask, void* const* arguments, Choose choose) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1U) == 0) continue;
    auto& own = *static_cast<ShuffleArgument*>(arguments[lane]);
    const int segment = lane & ~(own.width - 1);
    const int source = choose(lane, segment, own);
    const bool active = (mask >> source & 1U) != 0;
    own.result =
        active ? static_cast<const ShuffleArgument*>(arguments[source])->value : ~std::uint64_t{0};
  }
}

void compute_index(std::uint32_t mask, void* const* arguments) {
  compute_shuffle(mask, arguments, [](int, int segment, const ShuffleArgument& own) {
    return segment + (own.selector & (own.width - 1));
  });
}

void compute_up(std::uint32_t mask, void* const* arguments) {
  compute_shuffle(mask, arguments, [](int lane, int segment, const ShuffleArgument& own) {
    return lane - own.selector < segment ? lane : lane - own.selector;
  });
}

void compute_down(std::uint32_t mask, void* const* arguments) {
  compute_shuffle(mask, arguments, [](int lane, int segment, const ShuffleArgument& own) {
    return lane + own.selector >= segment + own.width ? lane : lane + own.selector;
  });
}

void compute_xor(std::uint32_t mask, void* const* arguments) {
  compute_shuffle(mask, arguments, [](int lane, int segment, const ShuffleArgument& own) {
    return (lane ^ own.selector) >= segment + own.width ? lane : lane ^ own.selector;
  });
}

void compute_ballot(std::uint32_t mask, void* const* arguments) {
  std::uint32_t votes = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1U) != 0 && static_cast<VoteArgument*>(arguments[lane])->predicate)
      votes |= 1U << lane;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1U) != 0) static_cast<VoteArgument*>(arguments[lane])->result = votes;
  }
}

}  // namespace

constinit const WarpOp kShuffle = {"shfl", compute_index, false};
constinit const WarpOp kShuffleUp = {"shfl_up", compute_up, false};
constinit const WarpOp kShuffleDown = {"shfl_down", compute_down, false};
constinit const WarpOp kShuffleXor = {"shfl_xor", compute_xor, false};
constinit const WarpOp kBallot = {"ballot", compute_ballot, false};
constinit const WarpOp kSyncWarp = {"syncwarp", nullptr, true};

}  // namespace sinew::twin
