// CUDA's warp functions on the twin, under CUDA's names.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/device/twin/core.h"

namespace sinew::twin {

struct ShuffleArgument {
  std::uint64_t value;
  std::uint64_t result;
  int selector;
  int width;
};
extern const WarpOp kShuffle;
extern const WarpOp kShuffleUp;
extern const WarpOp kShuffleDown;
extern const WarpOp kShuffleXor;

struct VoteArgument {
  bool predicate;
  std::uint32_t result;
};
extern const WarpOp kBallot;
extern const WarpOp kSyncWarp;

// A built-in copy of a constant size is a plain move: no library call that the race detector would
// take for an access.
template <typename T>
T shuffle(const WarpOp& op, std::uint32_t mask, T value, int selector, int width,
          const Site& site) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  ShuffleArgument argument{0, 0, selector, width};
  __builtin_memcpy(&argument.value, &value, sizeof(T));
  warp_rendezvous(mask, op, &argument, site);
  __builtin_memcpy(&value, &argument.result, sizeof(T));
  return value;
}

inline std::uint32_t ballot(std::uint32_t mask, bool predicate, const Site& site) {
  VoteArgument argument{predicate, 0};
  warp_rendezvous(mask, kBallot, &argument, site);
  return argument.result;
}

}  // namespace sinew::twin
// NOLINTBEGIN(bugprone-reserved-identifier): the names that CUDA gives them
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              const sinew::twin::Site& site = sinew::twin::Site::current()) {
  return sinew::twin::shuffle(sinew::twin::kShuffle, mask, value, lane, width, site);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 const sinew::twin::Site& site = sinew::twin::Site::current()) {
  return sinew::twin::shuffle(sinew::twin::kShuffleUp, mask, value, static_cast<int>(delta), width,
                              site);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   const sinew::twin::Site& site = sinew::twin::Site::current()) {
  return sinew::twin::shuffle(sinew::twin::kShuffleDown, mask, value, static_cast<int>(delta),
                              width, site);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  const sinew::twin::Site& site = sinew::twin::Site::current()) {
  return sinew::twin::shuffle(sinew::twin::kShuffleXor, mask, value, bits, width, site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const sinew::twin::Site& site = sinew::twin::Site::current()) {
  return sinew::twin::ballot(mask, predicate != 0, site);
}
inline int __any_sync(unsigned mask, int predicate,
                      const sinew::twin::Site& site = sinew::twin::Site::current()) {
  return sinew::twin::ballot(mask, predicate != 0, site) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      const sinew::twin::Site& site = sinew::twin::Site::current()) {
  return sinew::twin::ballot(mask, predicate != 0, site) == mask ? 1 : 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffU,
                       const sinew::twin::Site& site = sinew::twin::Site::current()) {
  sinew::twin::warp_rendezvous(mask, sinew::twin::kSyncWarp, nullptr, site);
}
// NOLINTEND(bugprone-reserved-identifier)
