// RMS norm over the last dimension (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + epsilon) *
// weight.
//
// x, y, residual, d_x, d_y: [rows, channels] row-major; weight, d_weight: [channels]; rstd: [rows].
// T is float, double or bf16; arithmetic, statistics and parameter gradients are Wide<T>. Backward,
// per row, with n = x rstd and g = d_y weight: d_x = rstd (g - n mean(g n)); d_weight += d_y n.
// Error, float, u = 2^-24: |y - exact| <= u (C/16 + 8) |y|, C channels, plus one rounding to bf16
// for bf16.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/layer_norm.h"
#include "kernels/threads.h"

namespace sinew::kernels {

// y may be x. rstd is saved for backward.
template <typename T>
void rms_norm_forward(NormShape shape, const T* x, const T* weight, Wide<T> epsilon, T* y,
                      Wide<T>* rstd, Threads threads = {});

// The same with the residual connection before it: residual += x, then y is the norm of residual. y
// may be x.
template <typename T>
void residual_rms_norm_forward(NormShape shape, T* residual, const T* x, const T* weight,
                               Wide<T> epsilon, T* y, Wide<T>* rstd, Threads threads = {});

// d_x += or = the gradient of x; d_weight is accumulated into, rows in increasing order. d_x may be
// d_y when it is not accumulated. With the residual connection, x is the sum and d_x accumulates
// into the residual's gradient.
template <typename T>
void rms_norm_backward(NormShape shape, const T* d_y, const T* x, const T* weight,
                       const Wide<T>* rstd, Write d_x_mode, T* d_x, Wide<T>* d_weight,
                       Threads threads = {});

// What one version provides; see registry.h. backward is one pass; its halves let threads split the
// rows (input) and the channels [begin, end) (parameters) and give the same bits.
template <typename T>
struct RmsNormFunctions {
  static constexpr std::string_view kOperation = "rms_norm";
  using Element = T;
  void (*forward)(NormShape shape, const T* x, const T* weight, Wide<T> epsilon, T* y,
                  Wide<T>* rstd);
  void (*residual_forward)(NormShape shape, T* residual, const T* x, const T* weight,
                           Wide<T> epsilon, T* y, Wide<T>* rstd);
  void (*backward)(NormShape shape, const T* d_y, const T* x, const T* weight, const Wide<T>* rstd,
                   Write d_x_mode, T* d_x, Wide<T>* d_weight);
  void (*backward_input)(NormShape shape, const T* d_y, const T* x, const T* weight,
                         const Wide<T>* rstd, Write d_x_mode, T* d_x);
  void (*backward_parameters)(NormShape shape, const T* d_y, const T* x, const Wide<T>* rstd,
                              Wide<T>* d_weight, std::int64_t begin, std::int64_t end);
};
template <typename T>
[[nodiscard]] const RmsNormFunctions<T>& rms_norm_plain();
// Null where this build has no code for `isa`; float and bf16.
template <typename T>
[[nodiscard]] const RmsNormFunctions<T>* rms_norm_simd(Isa isa);

}  // namespace sinew::kernels
