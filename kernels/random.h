// Random words by global element index: what dropout and stochastic rounding draw, the same on
// every layout, processor and version. A counter of Philox gives four words; elements take them so
// that vector code needs no shuffles: element i of a stream is in block i / 64, at place p = i % 64
// it takes word p / 16 of counter 16 (i / 64) + p % 16.
#pragma once

#include <cstdint>

#include "sched/base/philox.h"

namespace sinew::kernels {

// One stream of words. Two streams never share a word; use one per purpose, step and layer.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint32_t purpose = 0;
  std::uint64_t stream = 0;
};

inline constexpr std::int64_t kRandomBlock = 64;

inline std::uint32_t random_word(const RandomStream& random, std::int64_t index) {
  const auto place = static_cast<std::uint64_t>(index % kRandomBlock);
  const std::uint64_t counter = static_cast<std::uint64_t>(index / kRandomBlock) * 16 + place % 16;
  return Philox(random.seed, random.purpose).words(counter, random.stream)[place / 16];
}

}  // namespace sinew::kernels
