// The vector AdamW step: one pass, the plain version's operations with fused multiply-adds.
#include "kernels/adamw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/simd_inl.h"
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

void step(const AdamW& options, std::int64_t count, const float* gradient, float* weight,
          float* first_moment, float* second_moment) {
  const FloatTag d;
  const AdamWFactors<float> factors(options);
  const auto beta1 = hn::Set(d, factors.beta1);
  const auto beta2 = hn::Set(d, factors.beta2);
  const auto rest1 = hn::Set(d, factors.rest1);
  const auto rest2 = hn::Set(d, factors.rest2);
  const auto correction1 = hn::Set(d, factors.correction1);
  const auto correction2 = hn::Set(d, factors.correction2);
  const auto epsilon = hn::Set(d, factors.epsilon);
  const auto lr = hn::Set(d, factors.lr);
  const auto decay = hn::Set(d, factors.decay);
  const auto gradient_scale = hn::Set(d, factors.gradient_scale);
  for_each_pack<float>(count, [&](auto io, std::int64_t i) SINEW_LAMBDA {
    const auto g = hn::Mul(io.load(gradient + i).v[0], gradient_scale);
    const auto m = hn::MulAdd(beta1, io.load(first_moment + i).v[0], hn::Mul(rest1, g));
    const auto v =
        hn::MulAdd(beta2, io.load(second_moment + i).v[0], hn::Mul(rest2, hn::Mul(g, g)));
    io.store(Pack<1>{{m}}, first_moment + i);
    io.store(Pack<1>{{v}}, second_moment + i);
    const auto spread = hn::Add(hn::Sqrt(hn::Mul(v, correction2)), epsilon);
    const auto direction = hn::Div(hn::Mul(m, correction1), spread);
    const auto w = io.load(weight + i).v[0];
    io.store(Pack<1>{{hn::NegMulAdd(lr, hn::MulAdd(decay, w, direction), w)}}, weight + i);
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
