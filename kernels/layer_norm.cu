// Layer norm: one block per row at a time. The row is read again rather than kept: it is in cache
// by then, and any number of channels works.
#include "kernels/device/column_sums.h"
#include "kernels/device/gpu.h"
#include "kernels/device/shapes.h"
#include "kernels/layer_norm_gpu.h"
#include "sched/base/check.h"

namespace sinew::kernels {

struct RowStatistics {
  float mean;
  float rstd;
};

// Two passes: the variance is summed around the mean, so that it does not cancel.
template <int kWidth, typename T>
GPU_FUNCTION RowStatistics row_statistics(const T* x, std::int64_t channels, float epsilon) {
  const float inverse = 1.0F / static_cast<float>(channels);
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * kWidth;
  float sum = 0;
  for (std::int64_t c = threadIdx.x * kWidth; c < channels; c += step) {
    const auto values = gpu::load_values<kWidth>(x + c);
    UNROLL for (int i = 0; i < kWidth; ++i) sum += values.v[i];
  }
  const float mean = gpu::block_all(sum, gpu::Sum{}) * inverse;
  float squares = 0;
  for (std::int64_t c = threadIdx.x * kWidth; c < channels; c += step) {
    const auto values = gpu::load_values<kWidth>(x + c);
    UNROLL for (int i = 0; i < kWidth; ++i) {
      squares += (values.v[i] - mean) * (values.v[i] - mean);
    }
  }
  const float variance = gpu::block_all(squares, gpu::Sum{}) * inverse;
  return {mean, 1.0F / sqrtf(variance + epsilon)};
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    layer_norm_forward_kernel(NormShape shape, const T* x, const T* weight, const T* bias,
                              float epsilon, T* y, float* mean, float* rstd) {
  const std::int64_t channels = shape.channels;
  for (std::int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    const T* source = x + r * channels;
    T* target = y + r * channels;
    const RowStatistics row = row_statistics<kWidth>(source, channels, epsilon);
    for (std::int64_t c = threadIdx.x * kWidth; c < channels; c += blockDim.x * kWidth) {
      auto values = gpu::load_values<kWidth>(source + c);
      const auto w = gpu::load_values<kWidth>(weight + c);
      const auto b = gpu::load_values<kWidth>(bias + c);
      UNROLL for (int i = 0; i < kWidth; ++i) {
        values.v[i] = (values.v[i] - row.mean) * row.rstd * w.v[i] + b.v[i];
      }
      gpu::store_values(target + c, values);
    }
    if (threadIdx.x == 0) {
      mean[r] = row.mean;
      rstd[r] = row.rstd;
    }
  }
}

// One part of the rows per block. Shared memory holds this part's sums of d_weight and d_bias; each
// entry belongs to one thread from beginning to end, so that they need no barrier.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    layer_norm_backward_kernel(NormShape shape, std::int64_t rows_per_part, const T* d_y,
                               const T* x, const T* weight, const float* mean, const float* rstd,
                               Write d_x_mode, T* d_x, float* partial) {
  SHARED_DYNAMIC(float, d_weight);
  const std::int64_t channels = shape.channels;
  float* d_bias = d_weight + channels;
  const std::int64_t first = threadIdx.x * kWidth;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * kWidth;
  const float inverse = 1.0F / static_cast<float>(channels);
  for (std::int64_t c = first; c < channels; c += step) {
    UNROLL for (int i = 0; i < kWidth; ++i) d_weight[c + i] = d_bias[c + i] = 0;
  }
  const std::int64_t begin = blockIdx.x * rows_per_part;
  const std::int64_t end = begin + rows_per_part < shape.rows ? begin + rows_per_part : shape.rows;
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t row = r * channels;
    const float center = mean[r];
    const float scale = rstd[r];
    gpu::Pair sums = {0, 0};
    for (std::int64_t c = first; c < channels; c += step) {
      const auto dy = gpu::load_values<kWidth>(d_y + row + c);
      const auto value = gpu::load_values<kWidth>(x + row + c);
      const auto w = gpu::load_values<kWidth>(weight + c);
      UNROLL for (int i = 0; i < kWidth; ++i) {
        const float normed = (value.v[i] - center) * scale;
        sums.a += dy.v[i] * w.v[i];
        sums.b += dy.v[i] * w.v[i] * normed;
        d_weight[c + i] += dy.v[i] * normed;
        d_bias[c + i] += dy.v[i];
      }
    }
    sums = gpu::block_all(sums, gpu::Sum{});
    for (std::int64_t c = first; c < channels; c += step) {
      auto dy = gpu::load_values<kWidth>(d_y + row + c);
      const auto value = gpu::load_values<kWidth>(x + row + c);
      const auto w = gpu::load_values<kWidth>(weight + c);
      UNROLL for (int i = 0; i < kWidth; ++i) {
        const float normed = (value.v[i] - center) * scale;
        dy.v[i] = (dy.v[i] * w.v[i] - sums.a * inverse - normed * (sums.b * inverse)) * scale;
      }
      if (d_x_mode == Write::kAccumulate) {
        const auto old = gpu::load_values<kWidth>(d_x + row + c);
        UNROLL for (int i = 0; i < kWidth; ++i) dy.v[i] += old.v[i];
      }
      gpu::store_values(d_x + row + c, dy);
    }
  }
  float* target = partial + blockIdx.x * 2 * channels;
  for (std::int64_t c = first; c < channels; c += step) {
    UNROLL for (int i = 0; i < kWidth; ++i) {
      target[c + i] = d_weight[c + i];
      target[channels + c + i] = d_bias[c + i];
    }
  }
}

template <typename T>
void layer_norm_forward(NormShape shape, const T* x, const T* weight, const T* bias, float epsilon,
                        T* y, float* mean, float* rstd, device::Stream& stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  with_width<gpu::kWidest<T>>(shape.channels, {x, weight, bias, y}, [&](auto width) {
    device::launch(layer_norm_forward_kernel<width(), T>,
                   row_shape(shape.rows, shape.channels / width()), stream, shape, x, weight, bias,
                   epsilon, y, mean, rstd);
  });
}

std::int64_t layer_norm_backward_workspace(NormShape shape) {
  const std::int64_t parts = row_parts(shape.rows).parts;
  return parts * 2 * shape.channels + column_sums_workspace(parts, shape.channels);
}

template <typename T>
void layer_norm_backward(NormShape shape, const T* d_y, const T* x, const T* weight,
                         const float* mean, const float* rstd, Write d_x_mode, T* d_x,
                         float* d_weight, float* d_bias, float* workspace, device::Stream& stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  CHECK_LE(shape.channels, kNormChannelsMax);
  const RowParts parts = row_parts(shape.rows);
  with_width<gpu::kWidest<T>>(shape.channels, {d_y, x, weight, d_x}, [&](auto width) {
    device::launch(layer_norm_backward_kernel<width(), T>,
                   {.grid = {static_cast<unsigned>(parts.parts)},
                    .block = {row_threads(shape.channels / width())},
                    .shared_bytes = static_cast<std::size_t>(shape.channels) * 2 * sizeof(float)},
                   stream, shape, parts.rows_per_part, d_y, x, weight, mean, rstd, d_x_mode, d_x,
                   workspace);
  });
  // A part's row is [d_weight | d_bias]: two sums over columns of one matrix.
  float* rest = workspace + parts.parts * 2 * shape.channels;
  const std::int64_t stride = 2 * shape.channels;
  column_sums<float>({workspace, parts.parts, shape.channels, stride}, d_weight, rest, stream);
  column_sums<float>({workspace + shape.channels, parts.parts, shape.channels, stride}, d_bias,
                     rest, stream);
}

#define SINEW_INSTANTIATE(T)                                                                      \
  template void layer_norm_forward<T>(NormShape, const T*, const T*, const T*, float, T*, float*, \
                                      float*, device::Stream&);                                   \
  template void layer_norm_backward<T>(NormShape, const T*, const T*, const T*, const float*,     \
                                       const float*, Write, T*, float*, float*, float*,           \
                                       device::Stream&);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
