// RMS norm, in the manner of layer_norm.cu.
#include "kernels/rms_norm_gpu.h"

#include "kernels/device/column_sums.h"
#include "kernels/device/gpu.h"
#include "kernels/device/shapes.h"
#include "sched/base/check.h"

namespace sinew::kernels {

template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    rms_norm_forward_kernel(NormShape shape, const T* x, const T* weight, float epsilon, T* y,
                            float* rstd) {
  const std::int64_t channels = shape.channels;
  const std::int64_t first = threadIdx.x * kWidth;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * kWidth;
  for (std::int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    const std::int64_t row = r * channels;
    float squares = 0;
    for (std::int64_t c = first; c < channels; c += step) {
      const auto values = gpu::load_values<kWidth>(x + row + c);
      UNROLL for (int i = 0; i < kWidth; ++i) squares += values.v[i] * values.v[i];
    }
    const float mean = gpu::block_all(squares, gpu::Sum{}) / static_cast<float>(channels);
    const float scale = 1.0F / sqrtf(mean + epsilon);
    for (std::int64_t c = first; c < channels; c += step) {
      auto values = gpu::load_values<kWidth>(x + row + c);
      const auto w = gpu::load_values<kWidth>(weight + c);
      UNROLL for (int i = 0; i < kWidth; ++i) values.v[i] = values.v[i] * scale * w.v[i];
      gpu::store_values(y + row + c, values);
    }
    if (threadIdx.x == 0) rstd[r] = scale;
  }
}

// Shared memory holds this part's sums of d_weight; each entry belongs to one thread.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    rms_norm_backward_kernel(NormShape shape, std::int64_t rows_per_part, const T* d_y, const T* x,
                             const T* weight, const float* rstd, Write d_x_mode, T* d_x,
                             float* partial) {
  SHARED_DYNAMIC(float, d_weight);
  const std::int64_t channels = shape.channels;
  const std::int64_t first = threadIdx.x * kWidth;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * kWidth;
  for (std::int64_t c = first; c < channels; c += step) {
    UNROLL for (int i = 0; i < kWidth; ++i) d_weight[c + i] = 0;
  }
  const std::int64_t begin = blockIdx.x * rows_per_part;
  const std::int64_t end = begin + rows_per_part < shape.rows ? begin + rows_per_part : shape.rows;
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t row = r * channels;
    const float scale = rstd[r];
    float sum = 0;
    for (std::int64_t c = first; c < channels; c += step) {
      const auto dy = gpu::load_values<kWidth>(d_y + row + c);
      const auto value = gpu::load_values<kWidth>(x + row + c);
      const auto w = gpu::load_values<kWidth>(weight + c);
      UNROLL for (int i = 0; i < kWidth; ++i) {
        const float weighted = dy.v[i] * (value.v[i] * scale);
        sum += weighted * w.v[i];
        d_weight[c + i] += weighted;
      }
    }
    const float mean = gpu::block_all(sum, gpu::Sum{}) / static_cast<float>(channels);
    for (std::int64_t c = first; c < channels; c += step) {
      auto dy = gpu::load_values<kWidth>(d_y + row + c);
      const auto value = gpu::load_values<kWidth>(x + row + c);
      const auto w = gpu::load_values<kWidth>(weight + c);
      UNROLL for (int i = 0; i < kWidth; ++i) {
        dy.v[i] = (dy.v[i] * w.v[i] - value.v[i] * scale * mean) * scale;
      }
      if (d_x_mode == Write::kAccumulate) {
        const auto old = gpu::load_values<kWidth>(d_x + row + c);
        UNROLL for (int i = 0; i < kWidth; ++i) dy.v[i] += old.v[i];
      }
      gpu::store_values(d_x + row + c, dy);
    }
  }
  for (std::int64_t c = first; c < channels; c += step) {
    UNROLL for (int i = 0; i < kWidth; ++i) partial[blockIdx.x * channels + c + i] =
        d_weight[c + i];
  }
}

template <typename T>
void rms_norm_forward(NormShape shape, const T* x, const T* weight, float epsilon, T* y,
                      float* rstd, device::Stream& stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  with_width<gpu::kWidest<T>>(shape.channels, {x, weight, y}, [&](auto width) {
    device::launch(rms_norm_forward_kernel<width(), T>,
                   row_shape(shape.rows, shape.channels / width()), stream, shape, x, weight,
                   epsilon, y, rstd);
  });
}

std::int64_t rms_norm_backward_workspace(NormShape shape) {
  const std::int64_t parts = row_parts(shape.rows).parts;
  return parts * shape.channels + column_sums_workspace(parts, shape.channels);
}

template <typename T>
void rms_norm_backward(NormShape shape, const T* d_y, const T* x, const T* weight,
                       const float* rstd, Write d_x_mode, T* d_x, float* d_weight, float* workspace,
                       device::Stream& stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  CHECK_LE(shape.channels, 48 * 1024);
  const RowParts parts = row_parts(shape.rows);
  with_width<gpu::kWidest<T>>(shape.channels, {d_y, x, weight, d_x}, [&](auto width) {
    device::launch(rms_norm_backward_kernel<width(), T>,
                   {.grid = {static_cast<unsigned>(parts.parts)},
                    .block = {row_threads(shape.channels / width())},
                    .shared_bytes = static_cast<std::size_t>(shape.channels) * sizeof(float)},
                   stream, shape, parts.rows_per_part, d_y, x, weight, rstd, d_x_mode, d_x,
                   workspace);
  });
  column_sums<float>({workspace, parts.parts, shape.channels, shape.channels}, d_weight,
                     workspace + parts.parts * shape.channels, stream);
}

#define SINEW_INSTANTIATE(T)                                                                       \
  template void rms_norm_forward<T>(NormShape, const T*, const T*, float, T*, float*,              \
                                    device::Stream&);                                              \
  template void rms_norm_backward<T>(NormShape, const T*, const T*, const T*, const float*, Write, \
                                     T*, float*, float*, device::Stream&);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
