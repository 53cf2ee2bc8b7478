// Layer norm: one block per row at a time. The row is read again rather than kept: it is in cache
// by then, and any number of channels works.
#include "kernels/device/gpu.h"
#include "kernels/device/shapes.h"
#include "kernels/layer_norm_gpu.h"

namespace sinew::kernels {

struct RowStatistics {
  float mean;
  float rstd;
};

// Two passes: the variance is summed around the mean, so that it does not cancel.
template <typename T>
GPU_FUNCTION RowStatistics row_statistics(const T* x, std::int64_t channels, float epsilon) {
  const auto inverse = 1.0F / static_cast<float>(channels);
  float sum = 0;
  for (std::int64_t c = threadIdx.x; c < channels; c += blockDim.x) sum += gpu::widen(x[c]);
  const float mean = gpu::block_all(sum, gpu::Sum{}) * inverse;
  float squares = 0;
  for (std::int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
    const float centered = gpu::widen(x[c]) - mean;
    squares += centered * centered;
  }
  const float variance = gpu::block_all(squares, gpu::Sum{}) * inverse;
  return {mean, 1.0F / sqrtf(variance + epsilon)};
}

template <typename T>
__global__ void __launch_bounds__(256)
    layer_norm_forward_kernel(NormShape shape, const T* x, const T* weight, const T* bias,
                              float epsilon, T* y, float* mean, float* rstd) {
  const std::int64_t channels = shape.channels;
  for (std::int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    const T* source = x + r * channels;
    T* target = y + r * channels;
    const RowStatistics row = row_statistics(source, channels, epsilon);
    for (std::int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      const float normed = (gpu::widen(source[c]) - row.mean) * row.rstd;
      target[c] = gpu::narrow<T>(normed * gpu::widen(weight[c]) + gpu::widen(bias[c]));
    }
    if (threadIdx.x == 0) {
      mean[r] = row.mean;
      rstd[r] = row.rstd;
    }
  }
}

template <typename T>
void layer_norm_forward(NormShape shape, const T* x, const T* weight, const T* bias, float epsilon,
                        T* y, float* mean, float* rstd, device::Stream& stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  device::launch(layer_norm_forward_kernel<T>, row_shape(shape.rows, shape.channels), stream, shape,
                 x, weight, bias, epsilon, y, mean, rstd);
}
template void layer_norm_forward<float>(NormShape, const float*, const float*, const float*, float,
                                        float*, float*, float*, device::Stream&);
template void layer_norm_forward<bf16>(NormShape, const bf16*, const bf16*, const bf16*, float,
                                       bf16*, float*, float*, device::Stream&);

}  // namespace sinew::kernels
