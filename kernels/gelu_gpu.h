// The GELU of gelu.h on device memory; T is float or bf16, arithmetic is f32.
#pragma once

#include <cstdint>

#include "kernels/device/runtime.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// y may be x.
template <typename T>
void gelu_forward(const T* x, T* y, std::int64_t count, device::Stream& stream);
// d_x = d_y * gelu'(x). d_x may be d_y.
template <typename T>
void gelu_backward(const T* d_y, const T* x, T* d_x, std::int64_t count, device::Stream& stream);

}  // namespace sinew::kernels
