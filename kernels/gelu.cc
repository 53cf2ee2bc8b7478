#include "kernels/gelu.h"

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {

template <typename T>
void gelu_forward(const T* x, T* y, std::int64_t count, Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr) return threads.accelerator->gelu_forward(x, y, count);
  }
  const auto& f = best<GeluFunctions<T>>();
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    f.forward(x + begin, y + begin, end - begin);
  });
}

template <typename T>
void gelu_backward(const T* d_y, const T* x, T* d_x, std::int64_t count, Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->gelu_backward(d_y, x, d_x, count);
  }
  const auto& f = best<GeluFunctions<T>>();
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    f.backward(d_y + begin, x + begin, d_x + begin, end - begin);
  });
}

template <typename T>
void bias_gelu_forward(T* x, const T* bias, T* y, std::int64_t rows, std::int64_t channels,
                       Threads threads) {
  CHECK(threads.accelerator == nullptr);
  const auto& f = best<GeluFunctions<T>>();
  parallel_for(threads, rows, grain_rows(channels), [&](std::int64_t begin, std::int64_t end) {
    f.bias_forward(x + begin * channels, bias, y + begin * channels, end - begin, channels);
  });
}

template <typename T>
void bias_gelu_backward(const T* d_y, const T* x, T* d_x, Wide<T>* d_bias, std::int64_t rows,
                        std::int64_t channels, Threads threads) {
  CHECK(threads.accelerator == nullptr);
  const auto& f = best<GeluFunctions<T>>();
  parallel_for(threads, channels, grain_channels(rows), [&](std::int64_t begin, std::int64_t end) {
    f.bias_backward(d_y, x, d_x, d_bias, rows, channels, begin, end);
  });
}

#define SINEW_INSTANTIATE(T)                                                                 \
  template void gelu_forward<T>(const T*, T*, std::int64_t, Threads);                        \
  template void gelu_backward<T>(const T*, const T*, T*, std::int64_t, Threads);             \
  template void bias_gelu_forward<T>(T*, const T*, T*, std::int64_t, std::int64_t, Threads); \
  template void bias_gelu_backward<T>(const T*, const T*, T*, Wide<T>*, std::int64_t,        \
                                      std::int64_t, Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
