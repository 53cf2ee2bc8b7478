// The launch shapes and the choice of access width that several kernels share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/device/launch_shape.h"
#include "kernels/device/runtime.h"

namespace sinew::kernels {

constexpr unsigned kStrideThreads = 256;
constexpr std::int64_t kRowThreadsMax = 256;

// Grid-stride loops over `items`, one item per thread and turn: enough blocks to fill the device
// (2,048 threads of a multiprocessor) and no more, so that the loop's set-up is paid once.
[[nodiscard]] inline device::LaunchShape stride_shape(std::int64_t items) {
  const std::int64_t full =
      std::int64_t{device::properties().multiprocessors} * (2048 / kStrideThreads);
  const std::int64_t needed = (items + kStrideThreads - 1) / kStrideThreads;
  return {.grid = {static_cast<unsigned>(std::clamp<std::int64_t>(needed, 1, full))},
          .block = {kStrideThreads}};
}

// Threads of a block that works on one row of `chunks` accesses: a multiple of 32, one access each
// where they are few.
[[nodiscard]] inline unsigned row_threads(std::int64_t chunks) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((chunks + 31) / 32 * 32, 32, kRowThreadsMax));
}

// One block for each of `rows` rows, up to a full device; the kernel strides over rows.
[[nodiscard]] inline device::LaunchShape row_shape(std::int64_t rows, std::int64_t chunks) {
  const unsigned threads = row_threads(chunks);
  const std::int64_t full = std::int64_t{device::properties().multiprocessors} * (2048 / threads);
  return {.grid = {static_cast<unsigned>(std::clamp<std::int64_t>(rows, 1, full))},
          .block = {threads}};
}

// How rows are shared out where each block leaves a partial result: a function of the shape alone,
// so that every device adds in the same order.
struct RowParts {
  std::int64_t parts;
  std::int64_t rows_per_part;
};
[[nodiscard]] inline RowParts row_parts(std::int64_t rows) {
  constexpr std::int64_t kPartsMax = 1024;  // several blocks for each multiprocessor of any device
  const std::int64_t rows_per_part = std::max<std::int64_t>(1, (rows + kPartsMax - 1) / kPartsMax);
  return {(rows + rows_per_part - 1) / rows_per_part, rows_per_part};
}

[[nodiscard]] inline bool is_aligned16(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// Calls launch(width) with the elements of one access as a constant: kWide when all rows of
// `channels` elements begin at multiples of 16 bytes, else 1.
template <int kWide, typename Launch>
void with_width(std::int64_t channels, std::initializer_list<const void*> pointers,
                Launch&& launch) {
  bool wide = channels % kWide == 0;
  for (const void* pointer : pointers) wide = wide && is_aligned16(pointer);
  if (wide) {
    launch(std::integral_constant<int, kWide>{});
  } else {
    launch(std::integral_constant<int, 1>{});
  }
}

}  // namespace sinew::kernels
