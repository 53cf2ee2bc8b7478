#include "kernels/elementwise.h"

#include <algorithm>
#include <cstring>

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {

template <typename T>
void add(T* target, const T* source, std::int64_t count, Threads threads) {
  if constexpr (!std::is_same_v<T, double>) {
    if (threads.accelerator != nullptr) return threads.accelerator->add(target, source, count);
  }
  const auto& f = best<ElementwiseFunctions<T>>();
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    f.add(target + begin, source + begin, end - begin);
  });
}

template <typename T>
void add_bias(T* y, const T* bias, std::int64_t rows, std::int64_t channels, Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->add_bias(y, bias, rows, channels);
  }
  const auto& f = best<ElementwiseFunctions<T>>();
  parallel_for(threads, rows, grain_rows(channels), [&](std::int64_t begin, std::int64_t end) {
    f.add_bias(y + begin * channels, bias, end - begin, channels);
  });
}

template <typename T>
void bias_backward(const T* d_y, Wide<T>* d_bias, std::int64_t rows, std::int64_t channels,
                   Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->bias_backward(d_y, d_bias, rows, channels);
  }
  const auto& f = best<ElementwiseFunctions<T>>();
  parallel_for(threads, channels, grain_channels(rows), [&](std::int64_t begin, std::int64_t end) {
    f.bias_backward(d_y, d_bias, rows, channels, begin, end);
  });
}

template <typename T>
double sum_of_squares(const T* data, std::int64_t count, Threads threads) {
  if constexpr (!std::is_same_v<T, double>) {
    if (threads.accelerator != nullptr) return threads.accelerator->sum_of_squares(data, count);
  }
  return best<ElementwiseFunctions<T>>().sum_of_squares(data, count);
}

template <typename T>
void copy(T* target, const T* source, std::int64_t count, Threads threads) {
  const std::size_t size_bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (size_bytes == 0) return;
  if (threads.accelerator != nullptr) return threads.accelerator->copy(target, source, size_bytes);
  std::memcpy(target, source, size_bytes);
}

template <typename T>
void clear(T* target, std::int64_t count, Threads threads) {
  if (threads.accelerator != nullptr)
    return threads.accelerator->clear(target, static_cast<std::size_t>(count) * sizeof(T));
  std::fill_n(target, count, T{});
}

template <typename T>
void fill(T* target, T value, std::int64_t count, Threads threads) {
  if constexpr (std::is_same_v<T, float>) {
    if (threads.accelerator != nullptr) return threads.accelerator->fill(target, value, count);
  }
  CHECK(threads.accelerator == nullptr);
  std::fill_n(target, count, value);
}

template <typename T>
void copy_rows(T* target, const T* source, const CopyRows& rows, Threads threads) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  if (threads.accelerator != nullptr) {
    return threads.accelerator->copy_rows(target, source,
                                          {.rows = rows.rows,
                                           .width = rows.width * kSize,
                                           .target_stride = rows.target_stride * kSize,
                                           .source_stride = rows.source_stride * kSize});
  }
  for (std::int64_t row = 0; row < rows.rows; ++row)
    std::memcpy(target + row * rows.target_stride, source + row * rows.source_stride,
                static_cast<std::size_t>(rows.width) * sizeof(T));
}

void synchronize(Threads threads) {
  if (threads.accelerator != nullptr) threads.accelerator->synchronize();
}

bool recording(Threads threads) {
  return threads.accelerator != nullptr && threads.accelerator->recording();
}

#define SINEW_INSTANTIATE(T)                                                               \
  template void add<T>(T*, const T*, std::int64_t, Threads);                               \
  template void add_bias<T>(T*, const T*, std::int64_t, std::int64_t, Threads);            \
  template void bias_backward<T>(const T*, Wide<T>*, std::int64_t, std::int64_t, Threads); \
  template double sum_of_squares<T>(const T*, std::int64_t, Threads);                      \
  template void copy<T>(T*, const T*, std::int64_t, Threads);                              \
  template void clear<T>(T*, std::int64_t, Threads);                                       \
  template void fill<T>(T*, T, std::int64_t, Threads);                                     \
  template void copy_rows<T>(T*, const T*, const CopyRows&, Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
