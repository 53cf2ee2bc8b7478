// Layer norm over the last dimension: y = (x - mean) / sqrt(var + epsilon) * weight + bias, biased
// variance. x, y, d_x, d_y: [rows, channels] row-major; weight, bias, d_weight, d_bias: [channels];
// mean, rstd: [rows].
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/threads.h"

namespace sinew::kernels {

struct NormShape {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
};

// y may be x. mean and rstd are saved for backward.
template <typename T>
void layer_norm_forward(NormShape shape, const T* x, const T* weight, const T* bias, T epsilon,
                        T* y, T* mean, T* rstd, Threads threads = {});

// d_x += or = (accumulate) the gradient of x; d_weight and d_bias are always accumulated into, rows
// in increasing order. d_x may be d_y when it is not accumulated.
enum class Write : std::uint8_t { kAssign, kAccumulate };
template <typename T>
void layer_norm_backward(NormShape shape, const T* d_y, const T* x, const T* weight, const T* mean,
                         const T* rstd, Write d_x_mode, T* d_x, T* d_weight, T* d_bias,
                         Threads threads = {});

// What one version provides; see registry.h. backward is one pass over the rows; the two halves of
// it let threads split the rows (input) and the channels [begin, end) (parameters) and give the
// same bits.
template <typename T>
struct LayerNormFunctions {
  static constexpr std::string_view kOperation = "layer_norm";
  using Element = T;
  void (*forward)(NormShape shape, const T* x, const T* weight, const T* bias, T epsilon, T* y,
                  T* mean, T* rstd);
  void (*backward_input)(NormShape shape, const T* d_y, const T* x, const T* weight, const T* mean,
                         const T* rstd, Write d_x_mode, T* d_x);
  void (*backward_parameters)(NormShape shape, const T* d_y, const T* x, const T* mean,
                              const T* rstd, T* d_weight, T* d_bias, std::int64_t begin,
                              std::int64_t end);
};
template <typename T>
[[nodiscard]] const LayerNormFunctions<T>& layer_norm_plain();

}  // namespace sinew::kernels
