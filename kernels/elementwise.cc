#include "kernels/elementwise.h"

#include "kernels/grain.h"
#include "kernels/registry.h"

namespace sinew::kernels {

template <typename T>
void add(T* target, const T* source, std::int64_t count, Threads threads) {
  const auto& f = best<ElementwiseFunctions<T>>();
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    f.add(target + begin, source + begin, end - begin);
  });
}

template <typename T>
void add_bias(T* y, const T* bias, std::int64_t rows, std::int64_t channels, Threads threads) {
  const auto& f = best<ElementwiseFunctions<T>>();
  parallel_for(threads, rows, grain_rows(channels), [&](std::int64_t begin, std::int64_t end) {
    f.add_bias(y + begin * channels, bias, end - begin, channels);
  });
}

template <typename T>
void bias_backward(const T* d_y, Wide<T>* d_bias, std::int64_t rows, std::int64_t channels,
                   Threads threads) {
  const auto& f = best<ElementwiseFunctions<T>>();
  parallel_for(threads, channels, grain_channels(rows), [&](std::int64_t begin, std::int64_t end) {
    f.bias_backward(d_y, d_bias, rows, channels, begin, end);
  });
}

template <typename T>
double sum_of_squares(const T* data, std::int64_t count) {
  return best<ElementwiseFunctions<T>>().sum_of_squares(data, count);
}

#define SINEW_INSTANTIATE(T)                                                               \
  template void add<T>(T*, const T*, std::int64_t, Threads);                               \
  template void add_bias<T>(T*, const T*, std::int64_t, std::int64_t, Threads);            \
  template void bias_backward<T>(const T*, Wide<T>*, std::int64_t, std::int64_t, Threads); \
  template double sum_of_squares<T>(const T*, std::int64_t);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
