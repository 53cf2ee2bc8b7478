#include "kernels/device/gpu.h"
#include "kernels/device/shapes.h"
#include "kernels/rope_gpu.h"
#include "sched/base/check.h"

namespace sinew::kernels {

// One thread per pair; neighbouring threads have neighbouring pairs of one head.
template <typename T>
__global__ void __launch_bounds__(kStrideThreads)
    rope_kernel(RopeShape shape, HeadView<T> x, const float* cosine, const float* sine,
                float sign) {
  const std::int64_t half = shape.head_dim / 2;
  const std::int64_t count = shape.batch * shape.time * shape.heads * half;
  for (std::int64_t i = gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    const std::int64_t pair = i % half;
    const std::int64_t head = i / half % shape.heads;
    const std::int64_t t = i / (half * shape.heads) % shape.time;
    const std::int64_t b = i / (half * shape.heads * shape.time);
    T* low = x.data + b * x.batch_stride + t * x.time_stride + head * shape.head_dim + pair;
    const float c = cosine[t * half + pair];
    const float s = sine[t * half + pair] * sign;
    const float u = gpu::widen(low[0]);
    const float v = gpu::widen(low[half]);
    low[0] = gpu::narrow<T>(u * c - v * s);
    low[half] = gpu::narrow<T>(v * c + u * s);
  }
}

template <typename T>
void rope(const RopeShape& shape, HeadView<T> x, const float* cosine, const float* sine,
          Turn direction, device::Stream& stream) {
  CHECK_EQ(shape.head_dim % 2, 0);
  const std::int64_t pairs = shape.batch * shape.time * shape.heads * (shape.head_dim / 2);
  if (pairs == 0) return;
  device::launch(rope_kernel<T>, stride_shape(pairs), stream, shape, x, cosine, sine,
                 direction == Turn::kForward ? 1.0F : -1.0F);
}
template void rope<float>(const RopeShape&, HeadView<float>, const float*, const float*, Turn,
                          device::Stream&);
template void rope<bf16>(const RopeShape&, HeadView<bf16>, const float*, const float*, Turn,
                         device::Stream&);

}  // namespace sinew::kernels
