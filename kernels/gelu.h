// GELU, tanh form: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Hendrycks and Gimpel, 2016.
// Error, float, u = 2^-24: |y - exact| <= 4 u |x|, |d_x - exact| <= 12 u |d_y|; bf16: 1e-5 |x| and
// 4e-5 |d_y|, plus one rounding to bf16.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/threads.h"

namespace sinew::kernels {

// y may be x.
template <typename T>
void gelu_forward(const T* x, T* y, std::int64_t count, Threads threads = {});
// d_x = d_y * gelu'(x). d_x may be d_y.
template <typename T>
void gelu_backward(const T* d_y, const T* x, T* d_x, std::int64_t count, Threads threads = {});

// What one version provides; see registry.h.
// With the bias of the layer before it: x[r, c] += bias[c], y = gelu(x). x: [rows, channels], kept
// for backward. y may be x, if nothing needs the pre-activation.
template <typename T>
void bias_gelu_forward(T* x, const T* bias, T* y, std::int64_t rows, std::int64_t channels,
                       Threads threads = {});
// d_x = d_y * gelu'(x) and d_bias[c] += sum over r of d_x[r, c] as it is before it is rounded to T,
// rows in increasing order. d_x may be d_y.
template <typename T>
void bias_gelu_backward(const T* d_y, const T* x, T* d_x, Wide<T>* d_bias, std::int64_t rows,
                        std::int64_t channels, Threads threads = {});

template <typename T>
struct GeluFunctions {
  static constexpr std::string_view kOperation = "gelu";
  using Element = T;
  void (*forward)(const T* x, T* y, std::int64_t count);
  void (*backward)(const T* d_y, const T* x, T* d_x, std::int64_t count);
  void (*bias_forward)(T* x, const T* bias, T* y, std::int64_t rows, std::int64_t channels);
  // Columns [begin, end).
  void (*bias_backward)(const T* d_y, const T* x, T* d_x, Wide<T>* d_bias, std::int64_t rows,
                        std::int64_t channels, std::int64_t begin, std::int64_t end);
};
template <typename T>
[[nodiscard]] const GeluFunctions<T>& gelu_plain();
// Null where this build has no code for `isa`; float and bf16.
template <typename T>
[[nodiscard]] const GeluFunctions<T>* gelu_simd(Isa isa);

}  // namespace sinew::kernels
