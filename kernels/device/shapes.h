// The launch shapes that several kernels share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/launch_shape.h"
#include "kernels/device/runtime.h"

namespace sinew::kernels {

constexpr unsigned kStrideThreads = 256;

// Grid-stride loops over `items`, one item per thread and turn: enough blocks to fill the device
// (2,048 threads of a multiprocessor) and no more, so that the loop's set-up is paid once.
[[nodiscard]] inline device::LaunchShape stride_shape(std::int64_t items) {
  const std::int64_t full =
      std::int64_t{device::properties().multiprocessors} * (2048 / kStrideThreads);
  const std::int64_t needed = (items + kStrideThreads - 1) / kStrideThreads;
  return {.grid = {static_cast<unsigned>(std::clamp<std::int64_t>(needed, 1, full))},
          .block = {kStrideThreads}};
}

// One block for each of `rows` rows, up to a full device; the kernel strides over rows.
[[nodiscard]] inline device::LaunchShape row_shape(std::int64_t rows, std::int64_t channels) {
  const unsigned threads = channels <= 512 ? 64 : channels <= 2048 ? 128 : 256;
  const std::int64_t full = std::int64_t{device::properties().multiprocessors} * (2048 / threads);
  return {.grid = {static_cast<unsigned>(std::clamp<std::int64_t>(rows, 1, full))},
          .block = {threads}};
}

}  // namespace sinew::kernels
