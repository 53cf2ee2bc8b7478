// The plain SwiGLU. With s = 1/(1 + exp(-x)): silu(x) = x s, silu'(x) = s (1 + x (1 - s)).
#include <cmath>

#include "kernels/swiglu.h"

namespace sinew::kernels {
namespace {

template <typename W>
W sigmoid(W x) {
  return 1 / (1 + std::exp(-x));
}

// s (1 + x (1 - s)) with 1 - s from the other side, so that large x loses nothing; infinities need
// the limit.
template <typename W>
W silu_slope(W x) {
  if (std::isinf(x)) return x > 0 ? W{1} : W{0};
  return sigmoid(x) * (1 + x * sigmoid(-x));
}

// -inf * 0 would be NaN; the limit is 0.
template <typename W>
W silu(W x) {
  return std::isinf(x) && x < 0 ? W{0} : x * sigmoid(x);
}

template <typename T>
void forward(const GatedShape& shape, const T* gate, const T* up, T* y) {
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      y[c] = narrow<T>(silu(widen(gate[c])) * widen(up[c]));
    }
    gate += shape.gate_stride;
    up += shape.gate_stride;
    y += shape.channels;
  }
}

template <typename T>
void backward(const GatedShape& shape, const T* d_y, const T* gate, const T* up, T* d_gate,
              T* d_up) {
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const Wide<T> d = widen(d_y[c]);
      const Wide<T> g = widen(gate[c]);
      const Wide<T> u = widen(up[c]);
      d_up[c] = narrow<T>(d * silu(g));
      d_gate[c] = narrow<T>(d * u * silu_slope(g));
    }
    gate += shape.gate_stride;
    up += shape.gate_stride;
    d_gate += shape.gate_stride;
    d_up += shape.gate_stride;
    d_y += shape.channels;
  }
}

}  // namespace

template <typename T>
const SwigluFunctions<T>& swiglu_plain() {
  static constexpr SwigluFunctions<T> table = {forward<T>, backward<T>};
  return table;
}
template const SwigluFunctions<float>& swiglu_plain();
template const SwigluFunctions<double>& swiglu_plain();
template const SwigluFunctions<bf16>& swiglu_plain();

}  // namespace sinew::kernels
