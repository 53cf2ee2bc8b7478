// Layer norm over the last dimension: y = (x - mean) / sqrt(var + epsilon) * weight + bias, biased
// variance.
//
// x, y, residual, d_x, d_y: [rows, channels] row-major; weight, bias, d_weight, d_bias: [channels];
// mean, rstd: [rows]. T is float, double or bf16; arithmetic, statistics and parameter gradients
// are Wide<T>. Error, float, u = 2^-24, C channels, n the normalised value of magnitude at most N
// in the row:
//   |y - exact| <= u (C/64 + 16) (1 + N) |weight| + 2 u |bias|, plus one rounding to bf16 for bf16.
// Backward gives the gradients of y; with the residual connection the caller accumulates d_x into
// the residual's gradient (Write::kAccumulate).
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/threads.h"

namespace sinew::kernels {

struct NormShape {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
};

// y may be x. mean and rstd are saved for backward.
template <typename T>
void layer_norm_forward(NormShape shape, const T* x, const T* weight, const T* bias,
                        Wide<T> epsilon, T* y, Wide<T>* mean, Wide<T>* rstd, Threads threads = {});

// The same with the residual connection before it: residual += x, then y is the norm of residual.
// Saves reading the sum back. y may be x.
template <typename T>
void residual_layer_norm_forward(NormShape shape, T* residual, const T* x, const T* weight,
                                 const T* bias, Wide<T> epsilon, T* y, Wide<T>* mean, Wide<T>* rstd,
                                 Threads threads = {});

// d_x += or = (accumulate) the gradient of x; d_weight and d_bias are always accumulated into, rows
// in increasing order. d_x may be d_y when it is not accumulated.
enum class Write : std::uint8_t { kAssign, kAccumulate };
template <typename T>
void layer_norm_backward(NormShape shape, const T* d_y, const T* x, const T* weight,
                         const Wide<T>* mean, const Wide<T>* rstd, Write d_x_mode, T* d_x,
                         Wide<T>* d_weight, Wide<T>* d_bias, Threads threads = {});

// What one version provides; see registry.h. backward is one pass over the rows; the two halves of
// it let threads split the rows (input) and the channels [begin, end) (parameters) and give the
// same bits.
template <typename T>
struct LayerNormFunctions {
  static constexpr std::string_view kOperation = "layer_norm";
  using Element = T;
  void (*forward)(NormShape shape, const T* x, const T* weight, const T* bias, Wide<T> epsilon,
                  T* y, Wide<T>* mean, Wide<T>* rstd);
  void (*residual_forward)(NormShape shape, T* residual, const T* x, const T* weight, const T* bias,
                           Wide<T> epsilon, T* y, Wide<T>* mean, Wide<T>* rstd);
  void (*backward)(NormShape shape, const T* d_y, const T* x, const T* weight, const Wide<T>* mean,
                   const Wide<T>* rstd, Write d_x_mode, T* d_x, Wide<T>* d_weight, Wide<T>* d_bias);
  void (*backward_input)(NormShape shape, const T* d_y, const T* x, const T* weight,
                         const Wide<T>* mean, const Wide<T>* rstd, Write d_x_mode, T* d_x);
  void (*backward_parameters)(NormShape shape, const T* d_y, const T* x, const Wide<T>* mean,
                              const Wide<T>* rstd, Wide<T>* d_weight, Wide<T>* d_bias,
                              std::int64_t begin, std::int64_t end);
};
template <typename T>
[[nodiscard]] const LayerNormFunctions<T>& layer_norm_plain();
// Null where this build has no code for `isa`; float and bf16.
template <typename T>
[[nodiscard]] const LayerNormFunctions<T>* layer_norm_simd(Isa isa);

}  // namespace sinew::kernels
