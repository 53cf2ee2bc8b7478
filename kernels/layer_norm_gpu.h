// The layer norm of layer_norm.h on device memory. T, the type of x, y, weight, bias and their
// gradients of x, is float or bf16; row sums, mean, rstd and the parameters' gradients are f32.
//
// The order of every sum depends on the shape only: same bits on every run. Aliasing as in
// layer_norm.h.
#pragma once

#include "kernels/device/runtime.h"
#include "kernels/layer_norm.h"

namespace sinew::kernels {

// Cost: x read twice (the second time from cache), y written once.
template <typename T>
void layer_norm_forward(NormShape shape, const T* x, const T* weight, const T* bias, float epsilon,
                        T* y, float* mean, float* rstd, device::Stream& stream);

}  // namespace sinew::kernels
