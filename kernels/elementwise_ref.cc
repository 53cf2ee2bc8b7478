// The plain element-wise kernels.
#include <array>

#include "kernels/elementwise.h"

namespace sinew::kernels {
namespace {

template <typename T>
void add(T* target, const T* source, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    target[i] = narrow<T>(widen(target[i]) + widen(source[i]));
}

template <typename T>
void add_bias(T* y, const T* bias, std::int64_t rows, std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      T& value = y[r * channels + c];
      value = narrow<T>(widen(value) + widen(bias[c]));
    }
  }
}

template <typename T>
void bias_backward(const T* d_y, Wide<T>* d_bias, std::int64_t rows, std::int64_t channels,
                   std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = begin; c < end; ++c) d_bias[c] += widen(d_y[r * channels + c]);
  }
}

template <typename T>
double squares_sum(const T* data, std::int64_t count) {
  std::array<double, kSquareLanes> lanes{};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(widen(data[i]));
    lanes[static_cast<std::size_t>(i % kSquareLanes)] += value * value;
  }
  for (std::size_t half = kSquareLanes / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

}  // namespace

template <typename T>
const ElementwiseFunctions<T>& elementwise_plain() {
  static constexpr ElementwiseFunctions<T> table = {add<T>, add_bias<T>, bias_backward<T>,
                                                    squares_sum<T>};
  return table;
}
template const ElementwiseFunctions<float>& elementwise_plain();
template const ElementwiseFunctions<double>& elementwise_plain();
template const ElementwiseFunctions<bf16>& elementwise_plain();

}  // namespace sinew::kernels
