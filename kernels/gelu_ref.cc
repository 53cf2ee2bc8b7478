// The plain GELU. With u = sqrt(2/pi) (x + 0.044715 x^3) and t = tanh(u):
//   y' = (1 + t)/2 + x/2 (1 - t^2) sqrt(2/pi) (1 + 3 * 0.044715 x^2)
#include <cmath>

#include "kernels/gelu.h"

namespace sinew::kernels {
namespace {

template <typename T>
constexpr T kRoot = static_cast<T>(0.79788456080286535588);  // sqrt(2/pi)
template <typename T>
constexpr T kCubic = static_cast<T>(0.044715);

template <typename T>
void forward(const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T v = x[i];
    const T t = std::tanh(kRoot<T> * (v + kCubic<T> * v * v * v));
    y[i] = v / 2 * (1 + t);
  }
}

template <typename T>
void backward(const T* d_y, const T* x, T* d_x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T v = x[i];
    const T t = std::tanh(kRoot<T> * (v + kCubic<T> * v * v * v));
    const T slope = kRoot<T> * (1 + 3 * kCubic<T> * v * v);
    d_x[i] = d_y[i] * ((1 + t) / 2 + v / 2 * (1 - t * t) * slope);
  }
}

}  // namespace

template <typename T>
const GeluFunctions<T>& gelu_plain() {
  static constexpr GeluFunctions<T> table = {forward<T>, backward<T>};
  return table;
}
template const GeluFunctions<float>& gelu_plain();
template const GeluFunctions<double>& gelu_plain();

}  // namespace sinew::kernels
