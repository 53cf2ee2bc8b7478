// The vector AdamW step: one pass over the four arrays.
#include "kernels/adamw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/adamw_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

void step(const AdamW& options, std::int64_t count, const float* gradient, float* weight,
          float* first_moment, float* second_moment) {
  const AdamWStep take_step(options);
  for_each_pack<float>(count, [&](auto io, std::int64_t i) SINEW_LAMBDA {
    auto m = io.load(first_moment + i);
    auto v = io.load(second_moment + i);
    io.store(take_step(io.load(gradient + i), io.load(weight + i), m, v), weight + i);
    io.store(m, first_moment + i);
    io.store(v, second_moment + i);
  });
}

}  // namespace

constexpr AdamWFunctions<float> kAdamW = {step};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

template <>
const AdamWFunctions<float>* adamw_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kAdamW);
}

}  // namespace sinew::kernels
#endif
