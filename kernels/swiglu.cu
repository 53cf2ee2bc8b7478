#include "kernels/swiglu_gpu.h"

#include "kernels/device/activation.h"
#include "kernels/device/shapes.h"

namespace sinew::kernels {

template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    swiglu_forward_kernel(GatedShape shape, const T* gate, const T* up, T* y) {
  for (std::int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    for (std::int64_t c = threadIdx.x * kWidth; c < shape.channels; c += blockDim.x * kWidth) {
      auto g = gpu::load_values<kWidth>(gate + r * shape.gate_stride + c);
      const auto u = gpu::load_values<kWidth>(up + r * shape.gate_stride + c);
      UNROLL for (int i = 0; i < kWidth; ++i) g.v[i] = silu(g.v[i]) * u.v[i];
      gpu::store_values(y + r * shape.channels + c, g);
    }
  }
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    swiglu_backward_kernel(GatedShape shape, const T* d_y, const T* gate, const T* up, T* d_gate,
                           T* d_up) {
  for (std::int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    for (std::int64_t c = threadIdx.x * kWidth; c < shape.channels; c += blockDim.x * kWidth) {
      const std::int64_t place = r * shape.gate_stride + c;
      const auto dy = gpu::load_values<kWidth>(d_y + r * shape.channels + c);
      auto g = gpu::load_values<kWidth>(gate + place);
      auto u = gpu::load_values<kWidth>(up + place);
      UNROLL for (int i = 0; i < kWidth; ++i) {
        const float d_g = dy.v[i] * u.v[i] * silu_slope(g.v[i]);
        u.v[i] = dy.v[i] * silu(g.v[i]);
        g.v[i] = d_g;
      }
      gpu::store_values(d_gate + place, g);
      gpu::store_values(d_up + place, u);
    }
  }
}

namespace {

// Rows begin at aligned places when the channels and the stride are whole accesses.
template <typename T, typename Launch>
void with_row_width(const GatedShape& shape, std::initializer_list<const void*> pointers,
                    Launch&& launch) {
  const bool whole = shape.gate_stride % gpu::kWidest<T> == 0;
  with_width<gpu::kWidest<T>>(whole ? shape.channels : 1, pointers, launch);
}

}  // namespace

template <typename T>
void swiglu_forward(const GatedShape& shape, const T* gate, const T* up, T* y,
                    device::Stream& stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  with_row_width<T>(shape, {gate, up, y}, [&](auto width) {
    device::launch(swiglu_forward_kernel<width(), T>,
                   row_shape(shape.rows, shape.channels / width()), stream, shape, gate, up, y);
  });
}

template <typename T>
void swiglu_backward(const GatedShape& shape, const T* d_y, const T* gate, const T* up, T* d_gate,
                     T* d_up, device::Stream& stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  with_row_width<T>(shape, {d_y, gate, up, d_gate, d_up}, [&](auto width) {
    device::launch(swiglu_backward_kernel<width(), T>,
                   row_shape(shape.rows, shape.channels / width()), stream, shape, d_y, gate, up,
                   d_gate, d_up);
  });
}

#define SINEW_INSTANTIATE(T)                                                                   \
  template void swiglu_forward<T>(const GatedShape&, const T*, const T*, T*, device::Stream&); \
  template void swiglu_backward<T>(const GatedShape&, const T*, const T*, const T*, T*, T*,    \
                                   device::Stream&);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
