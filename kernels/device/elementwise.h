// The loop of kernels that treat each element alone: chunks of the widest access, then what is left
// one by one.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/device/gpu.h"
#include "kernels/device/shapes.h"

namespace sinew::kernels {

// body.template apply<kWidth>(i) treats the elements i to i + kWidth - 1.
template <int kWide, typename Body>
__global__ void __launch_bounds__(kStrideThreads)
    elementwise_kernel(Body body, std::int64_t chunks, std::int64_t count) {
  const std::int64_t step = gpu::grid_threads();
  for (std::int64_t i = gpu::grid_thread(); i < chunks; i += step)
    body.template apply<kWide>(i * kWide);
  for (std::int64_t i = chunks * kWide + gpu::grid_thread(); i < count; i += step) {
    body.template apply<1>(i);
  }
}

// kWide elements are accessed at once where all pointers are multiples of 16 bytes.
template <int kWide, typename Body>
void launch_elementwise(const Body& body, std::int64_t count,
                        std::initializer_list<const void*> pointers, device::Stream& stream) {
  if (count == 0) return;
  bool wide = true;
  for (const void* pointer : pointers) wide = wide && is_aligned16(pointer);
  const std::int64_t chunks = wide ? count / kWide : 0;
  device::launch(elementwise_kernel<kWide, Body>, stride_shape(wide ? chunks + kWide : count),
                 stream, body, chunks, count);
}

}  // namespace sinew::kernels
