#include "kernels/embedding.h"

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"

namespace sinew::kernels {

template <typename T>
void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table,
                       const T* positions, T* y, Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->embedding_forward(shape, tokens, table, positions, y);
  }
  const auto& f = best<EmbeddingFunctions<T>>();
  parallel_for(threads, shape.batch * shape.time, grain_rows(shape.channels),
               [&](std::int64_t begin, std::int64_t end) {
                 f.forward(shape, tokens, table, positions, y, begin, end);
               });
}

template <typename T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* d_y,
                        Wide<T>* d_table, Wide<T>* d_positions, Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->embedding_backward(shape, tokens, d_y, d_table, d_positions);
  }
  const auto& f = best<EmbeddingFunctions<T>>();
  parallel_for(threads, shape.channels, grain_channels(shape.batch * shape.time),
               [&](std::int64_t begin, std::int64_t end) {
                 f.backward(shape, tokens, d_y, d_table, d_positions, begin, end);
               });
}

#define SINEW_INSTANTIATE(T)                                                                \
  template void embedding_forward<T>(const EmbeddingShape&, const std::int32_t*, const T*,  \
                                     const T*, T*, Threads);                                \
  template void embedding_backward<T>(const EmbeddingShape&, const std::int32_t*, const T*, \
                                      Wide<T>*, Wide<T>*, Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
