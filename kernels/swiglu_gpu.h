// The SwiGLU of swiglu.h on device memory; T is float or bf16, arithmetic is f32.
#pragma once

#include "kernels/device/runtime.h"
#include "kernels/swiglu.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

template <typename T>
void swiglu_forward(const GatedShape& shape, const T* gate, const T* up, T* y,
                    device::Stream& stream);
// d_gate may be gate and d_up may be up.
template <typename T>
void swiglu_backward(const GatedShape& shape, const T* d_y, const T* gate, const T* up, T* d_gate,
                     T* d_up, device::Stream& stream);

}  // namespace sinew::kernels
