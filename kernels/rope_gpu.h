// The rotary embedding of rope.h on device memory, in place; T is float or bf16, tables and
// arithmetic are f32.
#pragma once

#include "kernels/device/runtime.h"
#include "kernels/rope.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// cosine, sine: [time, head_dim/2] on the device, of rope_table.
template <typename T>
void rope(const RopeShape& shape, HeadView<T> x, const float* cosine, const float* sine,
          Turn direction, device::Stream& stream);

}  // namespace sinew::kernels
