// The AdamW step of adamw.h on device memory, one pass over everything it needs. Products
// and sums round one by one: the bits of the CPU's plain version, on every device.
#pragma once

#include <cstdint>

#include "kernels/adamw.h"
#include "kernels/device/runtime.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// f32 master weights. gradient: [count] of float or bf16; working: [count], what the layers
// compute with, rounded to nearest from the new weight; null when that is the master itself.
// Cost per element: 12 bytes of state read and written, the gradient read, working written.
template <typename G>
void adamw(const AdamW& options, std::int64_t count, const G* gradient, float* weight,
           float* first_moment, float* second_moment, bf16* working, device::Stream& stream);

// How a bf16 weight without a master is rounded: up or down with the probability that keeps the
// expectation, by a number that depends on the seed, the step and the element's global index only.
struct StochasticRounding {
  std::uint64_t seed = 0;
  std::uint64_t first_index = 0;  // global index of element 0
};

// bf16 weights without a master; moments f32.
template <typename G>
void adamw_stochastic(const AdamW& options, const StochasticRounding& rounding, std::int64_t count,
                      const G* gradient, bf16* weight, float* first_moment, float* second_moment,
                      device::Stream& stream);

}  // namespace sinew::kernels
