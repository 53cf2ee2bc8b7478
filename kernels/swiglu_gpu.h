// SwiGLU: y = silu(gate) * up, silu(x) = x / (1 + exp(-x)). Shazeer, 2020. Device memory.
//
// gate and up are matrices [rows, channels] whose rows begin `stride` elements apart, so that both
// may be halves of one matrix [rows, 2 channels]; so are their gradients. y, d_y: [rows, channels],
// dense. T is float or bf16, arithmetic is f32.
#pragma once

#include <cstdint>

#include "kernels/device/runtime.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

struct SwigluShape {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  std::int64_t stride = 0;
};

template <typename T>
void swiglu_forward(const SwigluShape& shape, const T* gate, const T* up, T* y,
                    device::Stream& stream);
// d_gate may be gate and d_up may be up.
template <typename T>
void swiglu_backward(const SwigluShape& shape, const T* d_y, const T* gate, const T* up, T* d_gate,
                     T* d_up, device::Stream& stream);

}  // namespace sinew::kernels
