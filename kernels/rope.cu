#include "kernels/rope_gpu.h"

#include <cmath>

#include "kernels/device/gpu.h"
#include "kernels/device/shapes.h"
#include "sched/base/check.h"

namespace sinew::kernels {

// One thread per pair; neighbouring threads have neighbouring pairs of one head.
template <typename T>
__global__ void __launch_bounds__(kStrideThreads)
    rope_kernel(RopeStrides shape, float sign, const float* table, T* x) {
  const std::int64_t half = shape.head_dim / 2;
  const std::int64_t count = shape.batch * shape.time * shape.heads * half;
  for (std::int64_t i = gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    const std::int64_t pair = i % half;
    const std::int64_t head = i / half % shape.heads;
    const std::int64_t t = i / (half * shape.heads) % shape.time;
    const std::int64_t b = i / (half * shape.heads * shape.time);
    T* low = x + b * shape.batch_stride + t * shape.time_stride + head * shape.head_dim + pair;
    const float cosine = table[(t * half + pair) * 2];
    const float sine = table[(t * half + pair) * 2 + 1] * sign;
    const float u = gpu::widen(low[0]);
    const float v = gpu::widen(low[half]);
    low[0] = gpu::narrow<T>(u * cosine - v * sine);
    low[half] = gpu::narrow<T>(v * cosine + u * sine);
  }
}

std::vector<float> rope_table(std::int64_t first, std::int64_t positions, std::int64_t head_dim,
                              double theta) {
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(positions * head_dim));
  for (std::int64_t t = first; t < first + positions; ++t) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
      const double angle = static_cast<double>(t) * std::pow(theta, exponent);
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

template <typename T>
void rope(const RopeStrides& shape, RopeTurn turn, const float* table, T* x,
          device::Stream& stream) {
  CHECK_EQ(shape.head_dim % 2, 0);
  const std::int64_t pairs = shape.batch * shape.time * shape.heads * (shape.head_dim / 2);
  if (pairs == 0) return;
  device::launch(rope_kernel<T>, stride_shape(pairs), stream, shape,
                 turn == RopeTurn::kForward ? 1.0F : -1.0F, table, x);
}
template void rope<float>(const RopeStrides&, RopeTurn, const float*, float*, device::Stream&);
template void rope<bf16>(const RopeStrides&, RopeTurn, const float*, bf16*, device::Stream&);

}  // namespace sinew::kernels
