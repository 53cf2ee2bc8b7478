// Grain: the least work that is worth waking a thread for. Waking a sleeping helper costs about 5
// us; a memory-bound kernel moves some 10 bytes per nanosecond, so 2^15 elements (some 30 us) keep
// the cost small.
#pragma once

#include <cstdint>

namespace sinew::kernels {

inline constexpr std::int64_t kGrainElements = std::int64_t{1} << 15;

// Rows of `channels` elements that make a grain.
constexpr std::int64_t grain_rows(std::int64_t channels) {
  return channels > 0 ? (kGrainElements + channels - 1) / channels : kGrainElements;
}

// Channels of `rows` elements that make a grain; at least a cache line of floats, so that two
// threads do not write one line.
constexpr std::int64_t grain_channels(std::int64_t rows) {
  const std::int64_t channels = grain_rows(rows);
  return channels > 16 ? channels : 16;
}

}  // namespace sinew::kernels
