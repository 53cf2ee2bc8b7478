// AdamW for bf16 weights in one pass over the state, gradient in f32.
//
// With a master copy: the f32 master weight takes the step of adamw.h (the same bits as
// adamw<float>), and the bf16 weight is the master rounded to nearest even. Without one: the bf16
// weight itself takes the step in f32 and is rounded stochastically, up with the probability of its
// distance from the value below, so that updates smaller than half a unit (2^-9 of the weight) are
// not all lost. The random bits are those of the element's global index (random.h), so a shard
// rounds as the whole does; use a stream per step.
//
// Every array: [count], none overlapping another. Traffic per element: 16 bytes read (14 without
// master) and 14 (10) written.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/adamw.h"
#include "kernels/cpu.h"
#include "kernels/random.h"
#include "kernels/threads.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

void adamw_with_master(const AdamW& options, std::int64_t count, const float* gradient,
                       float* master, bf16* weight, float* first_moment, float* second_moment,
                       Threads threads = {});

// first_index: the global index of element 0.
void adamw_stochastic(const AdamW& options, const RandomStream& random, std::int64_t first_index,
                      std::int64_t count, const float* gradient, bf16* weight, float* first_moment,
                      float* second_moment, Threads threads = {});

// The bf16 next to `value` toward zero, or away from it when the low 16 bits of `value` plus `bits`
// carry. Infinities and NaN stay.
[[nodiscard]] bf16 round_stochastically(float value, std::uint16_t bits);

// What one version provides; see registry.h.
struct MixedAdamWFunctions {
  static constexpr std::string_view kOperation = "mixed_adamw";
  using Element = bf16;
  void (*with_master)(const AdamW& options, std::int64_t count, const float* gradient,
                      float* master, bf16* weight, float* first_moment, float* second_moment);
  void (*stochastic)(const AdamW& options, const RandomStream& random, std::int64_t first_index,
                     std::int64_t count, const float* gradient, bf16* weight, float* first_moment,
                     float* second_moment);
};
[[nodiscard]] const MixedAdamWFunctions& mixed_adamw_plain();
// Null where this build has no code for `isa`.
[[nodiscard]] const MixedAdamWFunctions* mixed_adamw_simd(Isa isa);

}  // namespace sinew::kernels
