// The plain AdamW for bf16 weights: the plain step on each element, then the rounding.
#include <bit>
#include <cmath>

#include "kernels/mixed_adamw.h"

namespace sinew::kernels {
namespace {

void with_master(const AdamW& options, std::int64_t count, const float* gradient, float* master,
                 bf16* weight, float* first_moment, float* second_moment) {
  adamw_plain<float>().step(options, count, gradient, master, first_moment, second_moment);
  for (std::int64_t i = 0; i < count; ++i) weight[i] = to_bf16(master[i]);
}

void stochastic(const AdamW& options, const RandomStream& random, std::int64_t first_index,
                std::int64_t count, const float* gradient, bf16* weight, float* first_moment,
                float* second_moment) {
  for (std::int64_t i = 0; i < count; ++i) {
    float value = to_float(weight[i]);
    adamw_plain<float>().step(options, 1, gradient + i, &value, first_moment + i,
                              second_moment + i);
    weight[i] = round_stochastically(value, random_bits(random, first_index + i));
  }
}

}  // namespace

bf16 round_stochastically(float value, std::uint16_t bits) {
  if (!std::isfinite(value)) return to_bf16(value);
  return {static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + bits) >> 16)};
}

const MixedAdamWFunctions& mixed_adamw_plain() {
  static constexpr MixedAdamWFunctions table = {with_master, stochastic};
  return table;
}

}  // namespace sinew::kernels
