// The layer norm of layer_norm.h on device memory. T, the type of x, y, weight, bias and of the
// gradients of x, is float or bf16; row sums, mean, rstd and the parameters' gradients are f32.
//
// The order of every sum depends on the shape only: same bits on every run and device. Aliasing as
// in layer_norm.h. channels <= kNormChannelsMax in backward.
#pragma once

#include "kernels/device/runtime.h"
#include "kernels/layer_norm.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// Two f32 for every channel of a row fit into a block's shared memory.
constexpr std::int64_t kNormChannelsMax = 24 * 1024;

// Cost: x read once from memory and twice from cache, y written once.
template <typename T>
void layer_norm_forward(NormShape shape, const T* x, const T* weight, const T* bias, float epsilon,
                        T* y, float* mean, float* rstd, device::Stream& stream);

// workspace: layer_norm_backward_workspace(shape) floats. Cost: d_y and x read once, d_x written
// once (and read when accumulated).
template <typename T>
void layer_norm_backward(NormShape shape, const T* d_y, const T* x, const T* weight,
                         const float* mean, const float* rstd, Write d_x_mode, T* d_x,
                         float* d_weight, float* d_bias, float* workspace, device::Stream& stream);
[[nodiscard]] std::int64_t layer_norm_backward_workspace(NormShape shape);

}  // namespace sinew::kernels
