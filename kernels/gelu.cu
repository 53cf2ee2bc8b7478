#include "kernels/device/activation.h"
#include "kernels/device/elementwise.h"
#include "kernels/gelu_gpu.h"

namespace sinew::kernels {

template <typename T>
struct GeluForward {
  const T* x;
  T* y;
  template <int kWidth>
  GPU_FUNCTION void apply(std::int64_t i) const {
    auto values = gpu::load_values<kWidth>(x + i);
    UNROLL for (int j = 0; j < kWidth; ++j) values.v[j] = gelu(values.v[j]);
    gpu::store_values(y + i, values);
  }
};

template <typename T>
struct GeluBackward {
  const T* d_y;
  const T* x;
  T* d_x;
  template <int kWidth>
  GPU_FUNCTION void apply(std::int64_t i) const {
    auto values = gpu::load_values<kWidth>(d_y + i);
    const auto at = gpu::load_values<kWidth>(x + i);
    UNROLL for (int j = 0; j < kWidth; ++j) values.v[j] *= gelu_slope(at.v[j]);
    gpu::store_values(d_x + i, values);
  }
};

template <typename T>
void gelu_forward(const T* x, T* y, std::int64_t count, device::Stream& stream) {
  launch_elementwise<gpu::kWidest<T>>(GeluForward<T>{x, y}, count, {x, y}, stream);
}

template <typename T>
void gelu_backward(const T* d_y, const T* x, T* d_x, std::int64_t count, device::Stream& stream) {
  launch_elementwise<gpu::kWidest<T>>(GeluBackward<T>{d_y, x, d_x}, count, {d_y, x, d_x}, stream);
}

template void gelu_forward<float>(const float*, float*, std::int64_t, device::Stream&);
template void gelu_forward<bf16>(const bf16*, bf16*, std::int64_t, device::Stream&);
template void gelu_backward<float>(const float*, const float*, float*, std::int64_t,
                                   device::Stream&);
template void gelu_backward<bf16>(const bf16*, const bf16*, bf16*, std::int64_t, device::Stream&);

}  // namespace sinew::kernels
