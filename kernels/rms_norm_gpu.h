// RMS norm over the last dimension: y = x rstd weight, rstd = 1 / sqrt(mean(x^2) + epsilon). Zhang
// and Sennrich, 2019. Device memory.
//
// x, y, d_x, d_y: [rows, channels] row-major; weight: [channels]; rstd: [rows]. T is float or bf16;
// sums, rstd and d_weight are f32. The order of every sum depends on the shape only.
#pragma once

#include "kernels/device/runtime.h"
#include "kernels/layer_norm.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// y may be x. Cost: x read once from memory and once from cache, y written once.
template <typename T>
void rms_norm_forward(NormShape shape, const T* x, const T* weight, float epsilon, T* y,
                      float* rstd, device::Stream& stream);

// With n = x rstd and g = d_y weight: d_x = rstd (g - n mean(g n)), assigned or accumulated;
// d_weight += sum over rows of d_y n. d_x may be d_y when it is assigned. workspace:
// rms_norm_backward_workspace(shape) floats. channels <= 48 * 1024.
template <typename T>
void rms_norm_backward(NormShape shape, const T* d_y, const T* x, const T* weight,
                       const float* rstd, Write d_x_mode, T* d_x, float* d_weight, float* workspace,
                       device::Stream& stream);
[[nodiscard]] std::int64_t rms_norm_backward_workspace(NormShape shape);

}  // namespace sinew::kernels
