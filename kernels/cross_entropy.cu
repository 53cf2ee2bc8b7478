// Cross entropy: one block per row of logits. Columns beyond the vocabulary end every row and are
// never read.
#include "kernels/cross_entropy_gpu.h"
#include "kernels/device/gpu.h"
#include "kernels/device/shapes.h"

namespace sinew::kernels {

// The widest access that covers the row, then single columns up to `valid`.
template <int kWidth, typename T, typename Body>
GPU_FUNCTION void for_each_column(T* row, std::int64_t valid, Body body) {
  const std::int64_t whole = valid / kWidth * kWidth;
  for (std::int64_t c = threadIdx.x * kWidth; c < whole; c += blockDim.x * kWidth) {
    body(row + c, std::integral_constant<int, kWidth>{});
  }
  for (std::int64_t c = whole + threadIdx.x; c < valid; c += blockDim.x) {
    body(row + c, std::integral_constant<int, 1>{});
  }
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    cross_entropy_max_kernel(CrossEntropyShape shape, std::int64_t valid, const T* logits,
                             float* row_max) {
  for (std::int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    float largest = -INFINITY;
    for_each_column<kWidth>(logits + r * shape.columns, valid, [&](const T* at, auto width) {
      const auto values = gpu::load_values<width()>(at);
      UNROLL for (int i = 0; i < width(); ++i) largest = gpu::Maximum{}(largest, values.v[i]);
    });
    largest = gpu::block_all(largest, gpu::Maximum{}, -INFINITY);
    if (threadIdx.x == 0) row_max[r] = largest;
  }
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    cross_entropy_sums_kernel(CrossEntropyShape shape, std::int64_t valid, const T* logits,
                              const std::int32_t* targets, const float* row_max, float* sum_exp,
                              float* target_logit) {
  for (std::int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    const T* row = logits + r * shape.columns;
    const float largest = row_max[r];
    float sum = 0;
    for_each_column<kWidth>(row, valid, [&](const T* at, auto width) {
      const auto values = gpu::load_values<width()>(at);
      UNROLL for (int i = 0; i < width(); ++i) sum += gpu::exp_approx(values.v[i] - largest);
    });
    sum = gpu::block_all(sum, gpu::Sum{});
    if (threadIdx.x == 0) {
      const std::int64_t target = targets[r] - shape.first_column;
      const bool own = targets[r] >= 0 && target >= 0 && target < valid;
      sum_exp[r] = sum;
      target_logit[r] = own ? gpu::widen(row[target]) - largest : 0.0F;
    }
  }
}

__global__ void __launch_bounds__(kStrideThreads)
    cross_entropy_loss_kernel(std::int64_t rows, const std::int32_t* targets, const float* sum_exp,
                              const float* target_logit, float* loss) {
  for (std::int64_t r = gpu::grid_thread(); r < rows; r += gpu::grid_threads()) {
    loss[r] = targets[r] >= 0 ? logf(sum_exp[r]) - target_logit[r] : 0.0F;
  }
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    cross_entropy_backward_kernel(CrossEntropyShape shape, std::int64_t valid, T* logits,
                                  const std::int32_t* targets, const float* row_max,
                                  const float* sum_exp, float given, const float* told) {
  const float scale = told != nullptr ? *told : given;
  for (std::int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    T* row = logits + r * shape.columns;
    const float largest = row_max[r];
    const bool counts = targets[r] >= 0;
    const float factor = counts ? scale / sum_exp[r] : 0.0F;
    const std::int64_t target = counts ? targets[r] - shape.first_column : -1;
    for_each_column<kWidth>(row, valid, [&](T* at, auto width) {
      auto values = gpu::load_values<width()>(at);
      UNROLL for (int i = 0; i < width(); ++i) {
        // Zero, not zero times: a row without loss may hold infinities.
        values.v[i] = counts ? gpu::exp_approx(values.v[i] - largest) * factor : 0.0F;
        if (at - row + i == target) values.v[i] -= scale;
      }
      gpu::store_values(at, values);
    });
    for (std::int64_t c = valid + threadIdx.x; c < shape.columns; c += blockDim.x) {
      row[c] = gpu::narrow<T>(0.0F);
    }
  }
}

__global__ void __launch_bounds__(kStrideThreads)
    cross_entropy_total_kernel(std::int64_t rows, const float* loss, double* total) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += kStrideThreads)
    sum += static_cast<double>(loss[i]);
  sum = gpu::block_all(sum, gpu::Sum{});
  if (threadIdx.x == 0) *total = sum;
}

namespace {

template <typename T, typename Launch>
void with_column_width(const CrossEntropyShape& shape, const T* logits, Launch&& launch) {
  with_width<gpu::kWidest<T>>(shape.columns, {logits}, launch);
}

device::LaunchShape column_shape(const CrossEntropyShape& shape, int width) {
  return row_shape(shape.rows, shape.columns / width);
}

}  // namespace

template <typename T>
void cross_entropy_max(const CrossEntropyShape& shape, const T* logits, float* row_max,
                       device::Stream& stream) {
  if (shape.rows == 0) return;
  with_column_width(shape, logits, [&](auto width) {
    device::launch(cross_entropy_max_kernel<width(), T>, column_shape(shape, width()), stream,
                   shape, valid_columns(shape), logits, row_max);
  });
}

template <typename T>
void cross_entropy_sums(const CrossEntropyShape& shape, const T* logits,
                        const std::int32_t* targets, const float* row_max, float* sum_exp,
                        float* target_logit, device::Stream& stream) {
  if (shape.rows == 0) return;
  with_column_width(shape, logits, [&](auto width) {
    device::launch(cross_entropy_sums_kernel<width(), T>, column_shape(shape, width()), stream,
                   shape, valid_columns(shape), logits, targets, row_max, sum_exp, target_logit);
  });
}

void cross_entropy_loss(std::int64_t rows, const std::int32_t* targets, const float* sum_exp,
                        const float* target_logit, float* loss, device::Stream& stream) {
  if (rows == 0) return;
  device::launch(cross_entropy_loss_kernel, stride_shape(rows), stream, rows, targets, sum_exp,
                 target_logit, loss);
}

void cross_entropy_total(std::int64_t rows, const float* loss, double* total,
                         device::Stream& stream) {
  device::launch(cross_entropy_total_kernel, {.block = {kStrideThreads}}, stream, rows, loss,
                 total);
}

template <typename T>
void cross_entropy_backward(const CrossEntropyShape& shape, T* logits, const std::int32_t* targets,
                            const float* row_max, const float* sum_exp, float scale,
                            device::Stream& stream, const float* told) {
  if (shape.rows == 0) return;
  with_column_width(shape, logits, [&](auto width) {
    device::launch(cross_entropy_backward_kernel<width(), T>, column_shape(shape, width()), stream,
                   shape, valid_columns(shape), logits, targets, row_max, sum_exp, scale, told);
  });
}

#define SINEW_INSTANTIATE(T)                                                                       \
  template void cross_entropy_max<T>(const CrossEntropyShape&, const T*, float*, device::Stream&); \
  template void cross_entropy_sums<T>(const CrossEntropyShape&, const T*, const std::int32_t*,     \
                                      const float*, float*, float*, device::Stream&);              \
  template void cross_entropy_backward<T>(const CrossEntropyShape&, T*, const std::int32_t*,       \
                                          const float*, const float*, float, device::Stream&,      \
                                          const float*);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
