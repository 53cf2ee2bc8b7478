// When a kernel's output bypasses the cache. A non-temporal store saves reading the line it fills,
// but the next reader finds nothing in the cache. Measured on an EPYC of the Zen 4 kind with 32 MiB
// of shared third-level cache, one thread, copy, GB/s ordinary against non-temporal: 4 MiB each way
// 96 : 55, 8 MiB 69 : 56, 16 MiB 44 : 54, 64 MiB 22 : 39. The lines cross where the bytes touched
// come near the cache's size; half of it is the limit, since ranks share the cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu.h"

namespace sinew::kernels {

// No third-level cache of a server is below twice this; smaller calls need not look at the
// processor.
inline constexpr std::int64_t kLeastStreamBytes = std::int64_t{1} << 20;

inline bool bypasses_cache(std::int64_t bytes_touched) {
  return bytes_touched >= kLeastStreamBytes && bytes_touched > cpu().l3_bytes / 2;
}

// How a copy writes.
enum class Stores : std::uint8_t { kCached, kPastCache };

inline Stores stores_for(std::int64_t bytes_touched) {
  return bypasses_cache(bytes_touched) ? Stores::kPastCache : Stores::kCached;
}

// Elements from `data` to the next multiple of `lanes` elements, for data aligned to its element.
template <typename T>
std::int64_t elements_to_alignment(const T* data, std::int64_t lanes) {
  const auto vector_bytes = static_cast<std::uintptr_t>(lanes) * sizeof(T);
  const std::uintptr_t misplaced = reinterpret_cast<std::uintptr_t>(data) % vector_bytes;
  return misplaced == 0 ? 0 : static_cast<std::int64_t>((vector_bytes - misplaced) / sizeof(T));
}

}  // namespace sinew::kernels
