// The plain GELU. With u = sqrt(2/pi) (x + 0.044715 x^3) and t = tanh(u):
//   y' = (1 + t)/2 + x/2 (1 - t^2) sqrt(2/pi) (1 + 3 * 0.044715 x^2)
#include <algorithm>
#include <cmath>

#include "kernels/gelu.h"

namespace sinew::kernels {
namespace {

template <typename W>
constexpr W kRoot = static_cast<W>(0.79788456080286535588);  // sqrt(2/pi)
template <typename W>
constexpr W kCubic = static_cast<W>(0.044715);

// -inf * 0 would be NaN; the limit is 0.
template <typename W>
W gelu(W x) {
  if (std::isinf(x) && x < 0) return 0;
  const W t = std::tanh(kRoot<W> * (x + kCubic<W> * x * x * x));
  return x / 2 * (1 + t);
}

template <typename W>
W gelu_slope(W x) {
  // Beyond 9.5 the slope is 0 or 1 to within 1e-31; the clamp keeps infinity times 0 away.
  const W v = std::isnan(x) ? x : std::clamp<W>(x, W{-9.5}, W{9.5});
  const W t = std::tanh(kRoot<W> * (v + kCubic<W> * v * v * v));
  const W slope = kRoot<W> * (1 + 3 * kCubic<W> * v * v);
  return (1 + t) / 2 + v / 2 * (1 - t * t) * slope;
}

template <typename T>
void forward(const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = narrow<T>(gelu(widen(x[i])));
}

template <typename T>
void backward(const T* d_y, const T* x, T* d_x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    d_x[i] = narrow<T>(widen(d_y[i]) * gelu_slope(widen(x[i])));
  }
}

template <typename T>
void bias_forward(T* x, const T* bias, T* y, std::int64_t rows, std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
    for (std::int64_t c = 0; c < channels; ++c) {
      x[c] = narrow<T>(widen(x[c]) + widen(bias[c]));
      y[c] = narrow<T>(gelu(widen(x[c])));
    }
  }
}

template <typename T>
void bias_backward(const T* d_y, const T* x, T* d_x, Wide<T>* d_bias, std::int64_t rows,
                   std::int64_t channels, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = 0; r < rows; ++r, d_y += channels, x += channels, d_x += channels) {
    for (std::int64_t c = begin; c < end; ++c) {
      const Wide<T> gradient = widen(d_y[c]) * gelu_slope(widen(x[c]));
      d_bias[c] += gradient;
      d_x[c] = narrow<T>(gradient);
    }
  }
}

}  // namespace

template <typename T>
const GeluFunctions<T>& gelu_plain() {
  static constexpr GeluFunctions<T> table = {forward<T>, backward<T>, bias_forward<T>,
                                             bias_backward<T>};
  return table;
}
template const GeluFunctions<float>& gelu_plain();
template const GeluFunctions<double>& gelu_plain();
template const GeluFunctions<bf16>& gelu_plain();

}  // namespace sinew::kernels
