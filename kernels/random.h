// Random bits by global element index: what dropout and stochastic rounding draw, the same on every
// layout, processor and version. An element takes 16 bits, so a counter of Philox serves eight; its
// words are shared out as vector code finds them without a shuffle, in 64-bit lanes that hold a
// product of the last round. Element i of a stream is in block i / 128; of the 32 places that the
// eight counters of a lane group fill with words 1 and 0, then of the 32 with words 3 and 2, place
// p takes the half p % 2 of word 1 (3) for p % 4 < 2, else of word 0 (2).
#pragma once

#include <cstddef>
#include <cstdint>

#include "sched/base/philox.h"

namespace sinew::kernels {

// One stream of words. Two streams never share a word; use one per purpose, step and layer.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint32_t purpose = 0;
  std::uint64_t stream = 0;
};

inline constexpr std::int64_t kRandomBlock = 128;
inline constexpr std::int64_t kBlockCounters = 16;

inline std::uint16_t random_bits(const RandomStream& random, std::int64_t index) {
  const std::int64_t place = index % kRandomBlock;
  const std::int64_t counter =
      index / kRandomBlock * kBlockCounters + place / 64 * 8 + place % 32 / 4;
  const std::int64_t word = place / 32 % 2 * 2 + 1 - place % 4 / 2;
  const auto words =
      Philox(random.seed, random.purpose).words(static_cast<std::uint64_t>(counter), random.stream);
  return static_cast<std::uint16_t>(words[static_cast<std::size_t>(word)] >> (place % 2 * 16));
}

}  // namespace sinew::kernels
