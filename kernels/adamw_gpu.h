// The AdamW step of adamw.h on device memory, one pass over everything it needs. Products
// and sums round one by one: the bits of the CPU's plain version, on every device.
#pragma once

#include <cstdint>

#include "kernels/adamw.h"
#include "kernels/device/runtime.h"
#include "kernels/random.h"
#include "kernels/step_update.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// f32 master weights. gradient: [count] of float or bf16; working: [count], what the layers
// compute with, rounded to nearest from the new weight; null when that is the master itself.
// update: null, or where the device finds the rate, the corrections and the gradient's scale of
// this step, instead of in options, and whether it changes anything. Cost per element: 12 bytes of
// state read and written, the gradient read, working written.
template <typename G>
void adamw(const AdamW& options, std::int64_t count, const G* gradient, float* weight,
           float* first_moment, float* second_moment, bf16* working, device::Stream& stream,
           const StepUpdate* update = nullptr);

// bf16 weights without a master, rounded as adamw_stochastic of mixed_adamw.h does: the same bits.
// update, where there is one, also says what is added to random.stream.
template <typename G>
void adamw_stochastic(const AdamW& options, const RandomStream& random, std::int64_t first_index,
                      std::int64_t count, const G* gradient, bf16* weight, float* first_moment,
                      float* second_moment, device::Stream& stream,
                      const StepUpdate* update = nullptr);

}  // namespace sinew::kernels
