// Grain: the least work that is worth waking a thread for. Waking a sleeping helper costs about 5
// us; a memory-bound kernel moves some 10 bytes per nanosecond, so 2^15 elements (some 30 us) keep
// the cost small.
#pragma once

#include <cstddef>
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

// Calls body(begin, end) on blocks of rows of two matrices small enough to stay in the second-level
// cache between two passes over them.
template <typename Body>
void for_each_row_block(std::int64_t rows, std::int64_t channels, std::size_t element_bytes,
                        const Body& body) {
  constexpr std::int64_t kBlockBytes = 128
                                       << 10;  // a quarter of 512 KiB, the smallest in use today
  const std::int64_t row_bytes = 2 * channels * static_cast<std::int64_t>(element_bytes);
  const std::int64_t step = row_bytes > 0 && row_bytes < kBlockBytes ? kBlockBytes / row_bytes : 1;
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    body(begin, begin + step < rows ? begin + step : rows);
  }
}

}  // namespace sinew::kernels
