#include "kernels/device/gpu.h"
#include "kernels/device/shapes.h"
#include "kernels/embedding_gpu.h"

namespace sinew::kernels {

template <int kWidth, typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    embedding_forward_kernel(EmbeddingShape shape, const std::int32_t* tokens, const T* table,
                             const T* positions, T* y) {
  const std::int64_t channels = shape.channels;
  const std::int64_t count = shape.batch * shape.time;
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const std::int64_t row = tokens[i] - shape.first_row;
    const bool own = row >= 0 && row < shape.rows;
    for (std::int64_t c = threadIdx.x * kWidth; c < channels; c += blockDim.x * kWidth) {
      gpu::Values<kWidth> values = {};
      if (own) values = gpu::load_values<kWidth>(table + row * channels + c);
      if (positions != nullptr) {
        const auto p = gpu::load_values<kWidth>(positions + i % shape.time * channels + c);
        UNROLL for (int j = 0; j < kWidth; ++j) values.v[j] += p.v[j];
      }
      gpu::store_values(y + i * channels + c, values);
    }
  }
}

constexpr unsigned kScatterThreads = 256;

// Block b owns the table rows r with r % blocks == b, so that no two blocks add to one row. It
// reads the tokens in order, a batch of 256 at a time, marks those it owns, and adds them one after
// the other; a thread owns its channels.
template <typename T>
__global__ void __launch_bounds__(kScatterThreads)
    embedding_scatter_kernel(EmbeddingShape shape, const std::int32_t* tokens, const T* d_y,
                             float* d_table) {
  SHARED(std::uint32_t, marks, kScatterThreads / gpu::kWarp);
  SHARED(std::int32_t, batch, kScatterThreads);
  const std::int64_t count = shape.batch * shape.time;
  for (std::int64_t first = 0; first < count; first += kScatterThreads) {
    const std::int64_t i = first + threadIdx.x;
    const std::int64_t row = i < count ? tokens[i] - shape.first_row : -1;
    const bool own = row >= 0 && row < shape.rows && row % gridDim.x == blockIdx.x;
    const std::uint32_t votes = __ballot_sync(gpu::kFullMask, own);
    if (gpu::lane() == 0) marks[gpu::warp()] = votes;
    batch[threadIdx.x] = static_cast<std::int32_t>(row);
    REQUIRED(embedding_marks_written, __syncthreads());
    for (int w = 0; w < static_cast<int>(kScatterThreads) / gpu::kWarp; ++w) {
      for (std::uint32_t left = marks[w]; left != 0; left &= left - 1) {
        const int slot = w * gpu::kWarp + gpu::lowest_bit(left);
        float* target = d_table + batch[slot] * shape.channels;
        const T* source = d_y + (first + slot) * shape.channels;
        for (std::int64_t c = threadIdx.x; c < shape.channels; c += kScatterThreads) {
          target[c] += gpu::widen(source[c]);
        }
      }
    }
    REQUIRED(embedding_marks_read, __syncthreads());
  }
}

// One thread per (t, channel), batches in order.
template <typename T>
__global__ void __launch_bounds__(kStrideThreads)
    embedding_positions_kernel(EmbeddingShape shape, const T* d_y, float* d_positions) {
  const std::int64_t count = shape.time * shape.channels;
  for (std::int64_t i = gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    float sum = d_positions[i];
    for (std::int64_t b = 0; b < shape.batch; ++b) sum += gpu::widen(d_y[b * count + i]);
    d_positions[i] = sum;
  }
}

template <typename T>
void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table,
                       const T* positions, T* y, device::Stream& stream) {
  if (shape.batch * shape.time == 0 || shape.channels == 0) return;
  with_width<gpu::kWidest<T>>(shape.channels, {table, positions, y}, [&](auto width) {
    device::launch(embedding_forward_kernel<width(), T>,
                   row_shape(shape.batch * shape.time, shape.channels / width()), stream, shape,
                   tokens, table, positions, y);
  });
}

template <typename T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* d_y,
                        float* d_table, float* d_positions, device::Stream& stream) {
  if (shape.batch * shape.time == 0 || shape.channels == 0) return;
  if (shape.rows > 0) {
    // Eight blocks fill a multiprocessor; more would only read the tokens more often.
    const std::int64_t full = std::int64_t{device::properties().multiprocessors} * 8;
    const auto blocks = static_cast<unsigned>(std::min(shape.rows, full));
    device::launch(embedding_scatter_kernel<T>, {.grid = {blocks}, .block = {kScatterThreads}},
                   stream, shape, tokens, d_y, d_table);
  }
  if (d_positions != nullptr) {
    device::launch(embedding_positions_kernel<T>, stride_shape(shape.time * shape.channels), stream,
                   shape, d_y, d_positions);
  }
}

#define SINEW_INSTANTIATE(T)                                                                \
  template void embedding_forward<T>(const EmbeddingShape&, const std::int32_t*, const T*,  \
                                     const T*, T*, device::Stream&);                        \
  template void embedding_backward<T>(const EmbeddingShape&, const std::int32_t*, const T*, \
                                      float*, float*, device::Stream&);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
