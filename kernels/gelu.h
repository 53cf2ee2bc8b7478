// GELU, tanh form: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Hendrycks and Gimpel, 2016.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/threads.h"

namespace sinew::kernels {

// y may be x.
template <typename T>
void gelu_forward(const T* x, T* y, std::int64_t count, Threads threads = {});
// d_x = d_y * gelu'(x). d_x may be d_y.
template <typename T>
void gelu_backward(const T* d_y, const T* x, T* d_x, std::int64_t count, Threads threads = {});

// What one version provides; see registry.h.
template <typename T>
struct GeluFunctions {
  static constexpr std::string_view kOperation = "gelu";
  using Element = T;
  void (*forward)(const T* x, T* y, std::int64_t count);
  void (*backward)(const T* d_y, const T* x, T* d_x, std::int64_t count);
};
template <typename T>
[[nodiscard]] const GeluFunctions<T>& gelu_plain();

}  // namespace sinew::kernels
