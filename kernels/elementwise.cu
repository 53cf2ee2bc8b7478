#include "kernels/device/elementwise.h"

#include "kernels/device/column_sums.h"
#include "kernels/elementwise_gpu.h"
#include "sched/base/check.h"
#include "sched/base/philox.h"

namespace sinew::kernels {

template <typename T>
struct Add {
  T* target;
  const T* source;
  template <int kWidth>
  GPU_FUNCTION void apply(std::int64_t i) const {
    auto sum = gpu::load_values<kWidth>(target + i);
    const auto more = gpu::load_values<kWidth>(source + i);
    UNROLL for (int j = 0; j < kWidth; ++j) sum.v[j] += more.v[j];
    gpu::store_values(target + i, sum);
  }
};

template <typename From, typename To>
struct Convert {
  const From* source;
  To* target;
  template <int kWidth>
  GPU_FUNCTION void apply(std::int64_t i) const {
    gpu::store_values(target + i, gpu::load_values<kWidth>(source + i));
  }
};

struct Fill {
  float* target;
  float value;
  template <int kWidth>
  GPU_FUNCTION void apply(std::int64_t i) const {
    gpu::Values<kWidth> values;
    UNROLL for (int j = 0; j < kWidth; ++j) values.v[j] = value;
    gpu::store_values(target + i, values);
  }
};

template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    add_bias_kernel(T* y, const T* bias, std::int64_t rows, std::int64_t channels) {
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    for (std::int64_t c = threadIdx.x * kWidth; c < channels; c += blockDim.x * kWidth) {
      auto sum = gpu::load_values<kWidth>(y + r * channels + c);
      const auto b = gpu::load_values<kWidth>(bias + c);
      UNROLL for (int j = 0; j < kWidth; ++j) sum.v[j] += b.v[j];
      gpu::store_values(y + r * channels + c, sum);
    }
  }
}

// Elements of one block: some turns of the loop, so that the block's reduction is a small part.
constexpr std::int64_t kSquaresPerBlock = 16 * 1024;

template <int kWidth, typename T>
__global__ void __launch_bounds__(kStrideThreads)
    squares_kernel(const T* data, std::int64_t count, double* partial) {
  const std::int64_t begin = blockIdx.x * kSquaresPerBlock;
  const std::int64_t end = begin + kSquaresPerBlock < count ? begin + kSquaresPerBlock : count;
  const std::int64_t whole = begin + (end - begin) / kWidth * kWidth;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x * kWidth; i < whole; i += kStrideThreads * kWidth) {
    const auto values = gpu::load_values<kWidth>(data + i);
    UNROLL for (int j = 0; j < kWidth; ++j) {
      sum += static_cast<double>(values.v[j]) * static_cast<double>(values.v[j]);
    }
  }
  for (std::int64_t i = whole + threadIdx.x; i < end; i += kStrideThreads) {
    const auto value = static_cast<double>(gpu::widen(data[i]));
    sum += value * value;
  }
  sum = gpu::block_all(sum, gpu::Sum{});
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kStrideThreads)
    sum_kernel(const double* partial, std::int64_t count, double* result) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kStrideThreads) sum += partial[i];
  sum = gpu::block_all(sum, gpu::Sum{});
  if (threadIdx.x == 0) *result = sum;
}

constexpr std::int64_t dropout_counters(const DropoutShape& shape) {
  return (shape.columns / kRandomBlock + 2) * kBlockCounters;
}

// One thread per counter of random.h, which serves two groups of four neighbouring elements; those
// of them that lie outside the row of this part are left out.
template <typename T>
__global__ void __launch_bounds__(kStrideThreads)
    dropout_kernel(DropoutShape shape, Philox philox, std::uint64_t stream,
                   const std::uint64_t* base, std::uint32_t threshold, float factor, const T* x,
                   T* y) {
  const std::uint64_t drawn = stream + (base != nullptr ? *base : 0);
  // A row touches at most this many counters.
  const std::int64_t counters = dropout_counters(shape);
  const std::int64_t count = shape.rows * counters;
  for (std::int64_t i = gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    const std::int64_t row = i / counters;
    const std::int64_t begin = (shape.first_row + row) * shape.global_columns + shape.first_column;
    const std::int64_t counter = begin / kRandomBlock * kBlockCounters + i % counters;
    const std::int64_t first = counter / kBlockCounters * kRandomBlock +
                               counter % kBlockCounters / 8 * 64 + counter % 8 * 4;
    const auto words = philox.words(static_cast<std::uint64_t>(counter), drawn);
    UNROLL for (int j = 0; j < 8; ++j) {
      const std::int64_t c = first + j / 4 * 32 + j % 4 - begin;
      if (c < 0 || c >= shape.columns) continue;
      const std::uint32_t word = words[static_cast<std::size_t>(j / 4 * 2 + 1 - j % 4 / 2)];
      const bool kept = (word >> (j % 2 * 16) & 0xffffU) >= threshold;
      const std::int64_t place = row * shape.columns + c;
      y[place] = gpu::narrow<T>(kept ? gpu::widen(x[place]) * factor : 0.0F);
    }
  }
}

template <typename T>
void add(T* target, const T* source, std::int64_t count, device::Stream& stream) {
  launch_elementwise<gpu::kWidest<T>>(Add<T>{target, source}, count, {target, source}, stream);
}

template <typename T>
void add_bias(T* y, const T* bias, std::int64_t rows, std::int64_t channels,
              device::Stream& stream) {
  if (rows == 0 || channels == 0) return;
  with_width<gpu::kWidest<T>>(channels, {y, bias}, [&](auto width) {
    device::launch(add_bias_kernel<width(), T>, row_shape(rows, channels / width()), stream, y,
                   bias, rows, channels);
  });
}

template <typename T>
void bias_backward(const T* d_y, float* d_bias, std::int64_t rows, std::int64_t channels,
                   float* workspace, device::Stream& stream) {
  column_sums<T>({d_y, rows, channels, channels}, d_bias, workspace, stream);
}

std::int64_t sum_of_squares_workspace(std::int64_t count) {
  return (count + kSquaresPerBlock - 1) / kSquaresPerBlock;
}

template <typename T>
void sum_of_squares(const T* data, std::int64_t count, double* result, double* workspace,
                    device::Stream& stream) {
  const std::int64_t blocks = sum_of_squares_workspace(count);
  if (blocks > 0) {
    with_width<gpu::kWidest<T>>(kSquaresPerBlock, {data}, [&](auto width) {
      device::launch(squares_kernel<width(), T>,
                     {.grid = {static_cast<unsigned>(blocks)}, .block = {kStrideThreads}}, stream,
                     data, count, workspace);
    });
  }
  device::launch(sum_kernel, {.block = {kStrideThreads}}, stream, workspace, blocks, result);
}

template <typename From, typename To>
void convert(const From* source, To* target, std::int64_t count, device::Stream& stream) {
  // Sixteen bytes of the wider type.
  constexpr int kWide =
      gpu::kWidest<From> < gpu::kWidest<To> ? gpu::kWidest<From> : gpu::kWidest<To>;
  launch_elementwise<kWide>(Convert<From, To>{source, target}, count, {source, target}, stream);
}

void fill(float* target, float value, std::int64_t count, device::Stream& stream) {
  launch_elementwise<gpu::kWidest<float>>(Fill{target, value}, count, {target}, stream);
}

template <typename T>
void dropout(const RandomStream& random, double probability, const DropoutShape& shape, const T* x,
             T* y, device::Stream& stream, const std::uint64_t* base) {
  if (shape.rows == 0 || shape.columns == 0) return;
  const std::uint32_t threshold = drop_threshold(probability);
  device::launch(dropout_kernel<T>, stride_shape(shape.rows * dropout_counters(shape)), stream,
                 shape, Philox(random.seed, random.purpose), random.stream, base, threshold,
                 static_cast<float>(keep_factor(threshold)), x, y);
}

#define SINEW_INSTANTIATE(T)                                                                  \
  template void add<T>(T*, const T*, std::int64_t, device::Stream&);                          \
  template void add_bias<T>(T*, const T*, std::int64_t, std::int64_t, device::Stream&);       \
  template void bias_backward<T>(const T*, float*, std::int64_t, std::int64_t, float*,        \
                                 device::Stream&);                                            \
  template void sum_of_squares<T>(const T*, std::int64_t, double*, double*, device::Stream&); \
  template void dropout<T>(const RandomStream&, double, const DropoutShape&, const T*, T*,    \
                           device::Stream&, const std::uint64_t*);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

template void convert<float, bf16>(const float*, bf16*, std::int64_t, device::Stream&);
template void convert<bf16, float>(const bf16*, float*, std::int64_t, device::Stream&);
template void convert<float, f16>(const float*, f16*, std::int64_t, device::Stream&);
template void convert<f16, float>(const f16*, float*, std::int64_t, device::Stream&);

}  // namespace sinew::kernels
