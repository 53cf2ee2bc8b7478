// The vector AdamW step on one vector, compiled once per instruction set: the plain version's
// operations with fused multiply-adds. Internal to adamw_simd.cc and mixed_adamw_simd.cc.
#if defined(SINEW_KERNELS_ADAMW_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SINEW_KERNELS_ADAMW_SIMD_INL_H
#undef SINEW_KERNELS_ADAMW_SIMD_INL_H
#else
#define SINEW_KERNELS_ADAMW_SIMD_INL_H
#endif

#include "kernels/adamw.h"
#include "kernels/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {

class AdamWStep {
 public:
  explicit AdamWStep(const AdamW& options) : f_(options) {}

  // Updates the moments in m and v and returns the new weight.
  HWY_INLINE FloatVec operator()(FloatVec gradient, FloatVec weight, FloatVec& m,
                                 FloatVec& v) const {
    const FloatTag d;
    const auto g = hn::Mul(gradient, hn::Set(d, f_.gradient_scale));
    m = hn::MulAdd(hn::Set(d, f_.beta1), m, hn::Mul(hn::Set(d, f_.rest1), g));
    v = hn::MulAdd(hn::Set(d, f_.beta2), v, hn::Mul(hn::Set(d, f_.rest2), hn::Mul(g, g)));
    const auto root = hn::Sqrt(hn::Mul(v, hn::Set(d, f_.correction2)));
    const auto direction =
        hn::Div(hn::Mul(m, hn::Set(d, f_.correction1)), hn::Add(root, hn::Set(d, f_.epsilon)));
    const auto change = hn::MulAdd(hn::Set(d, f_.decay), weight, direction);
    return hn::NegMulAdd(hn::Set(d, f_.lr), change, weight);
  }

  // The same for packs.
  template <std::size_t n>
  HWY_INLINE Pack<n> operator()(const Pack<n>& gradient, const Pack<n>& weight, Pack<n>& m,
                                Pack<n>& v) const {
    Pack<n> result;
    for_rows<static_cast<int>(n)>([&](auto k) SINEW_LAMBDA {
      result.v[k] = (*this)(gradient.v[k], weight.v[k], m.v[k], v.v[k]);
    });
    return result;
  }

 private:
  AdamWFactors<float> f_;
};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
