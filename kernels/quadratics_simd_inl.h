// Quadratics (quadratics.h) on vectors, for the instruction sets that look up 32 floats at once.
// Internal to x_simd.cc files.
#if defined(SINEW_KERNELS_QUADRATICS_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SINEW_KERNELS_QUADRATICS_SIMD_INL_H
#undef SINEW_KERNELS_QUADRATICS_SIMD_INL_H
#else
#define SINEW_KERNELS_QUADRATICS_SIMD_INL_H
#endif

#include "kernels/quadratics.h"
#include "kernels/simd_inl.h"

#if HWY_TARGET <= HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {

HWY_INLINE FloatVec look_up(const float* table, __m512i index) {
  const FloatTag d;
  return FloatVec{_mm512_permutex2var_ps(hn::Load(d, table).raw, index,
                                         hn::Load(d, table + kSegments / 2).raw)};
}

// f(a) of |x| clamped to the limit; the clamped |x| into `a`. NaN stays NaN in both.
HWY_INLINE FloatVec value_of(const Quadratics& f, FloatVec x, FloatVec& a) {
  const FloatTag d;
  // The operand order passes a NaN on.
  a = hn::Min(hn::Set(d, f.limit), hn::Abs(x));
  const auto segments = hn::Mul(a, hn::Set(d, f.scale));
  constexpr int kToNearest = 8;
  const FloatVec r{_mm512_reduce_ps(segments.raw, kToNearest)};
  const __m512i index = _mm512_cvtps_epi32(segments.raw);
  const auto slope = hn::MulAdd(r, look_up(f.square, index), look_up(f.linear, index));
  return hn::MulAdd(r, slope, look_up(f.constant, index));
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif
