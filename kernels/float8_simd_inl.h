// The 8-bit floats on vectors, compiled once per instruction set: the steps of float8.h on lanes.
// Internal to convert_simd.cc and the reductions.
#if defined(SINEW_KERNELS_FLOAT8_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SINEW_KERNELS_FLOAT8_SIMD_INL_H
#undef SINEW_KERNELS_FLOAT8_SIMD_INL_H
#else
#define SINEW_KERNELS_FLOAT8_SIMD_INL_H
#endif

#include <cstdint>
#include <type_traits>

#include "kernels/float8.h"
#include "kernels/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {

// As many bytes as D, a tag of floats, has lanes.
template <class D>
using ByteTag = hn::Rebind<std::uint8_t, D>;

// The bits of T in each 32-bit lane; the steps of to_float8.
template <typename T, class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> float8_bits(D d, hn::Vec<D> value) {
  using Traits = Float8Traits<T>;
  constexpr int kDropped = 23 - Traits::kFractionBits;
  const hn::RebindToUnsigned<D> d32;
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(d32, value)), hn::Set(d32, 0x80));
  const auto clamped = hn::Min(hn::Abs(value), hn::Set(d, Traits::kLargest));
  const auto bits = hn::BitCast(d32, clamped);

  const auto odd = hn::And(hn::ShiftRight<kDropped>(bits), hn::Set(d32, 1));
  constexpr std::uint32_t kAdd = ((1U << (kDropped - 1)) - 1) - ((127U - Traits::kBias) << 23);
  const auto normal = hn::ShiftRight<kDropped>(hn::Add(hn::Add(bits, hn::Set(d32, kAdd)), odd));

  const auto aligner = hn::Set(d, smallest_float8<T>() * 0x1p23F);
  const auto subnormal =
      hn::Sub(hn::BitCast(d32, hn::Add(clamped, aligner)), hn::BitCast(d32, aligner));

  const auto is_normal =
      hn::Ge(clamped, hn::Set(d, smallest_float8<T>() * (1 << Traits::kFractionBits)));
  const auto magnitude = hn::IfThenElse(hn::RebindMask(d32, is_normal), normal, subnormal);
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(value));
  return hn::Or(sign, hn::IfThenElse(is_nan, hn::Set(d32, 0x7f), magnitude));
}

template <typename T, class D>
HWY_INLINE hn::Vec<ByteTag<D>> narrow_float8(D d, hn::Vec<D> value) {
  const hn::RebindToSigned<D> di;
  return hn::DemoteTo(ByteTag<D>(), hn::BitCast(di, float8_bits<T>(d, value)));
}

template <typename T, class D>
HWY_INLINE hn::Vec<D> widen_float8(D d, hn::Vec<ByteTag<D>> bytes) {
  if constexpr (std::is_same_v<T, e5m2>) {
    // The upper half of f16.
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> d_half;
    return hn::PromoteTo(d, hn::BitCast(d_half, hn::ShiftLeft<8>(hn::PromoteTo(d16, bytes))));
  } else {
    static_assert(std::is_same_v<T, e4m3>);
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::PromoteTo(d32, bytes);
    const auto magnitude = hn::And(bits, hn::Set(d32, 0x7f));
    const auto value = hn::Mul(hn::BitCast(d, hn::ShiftLeft<20>(magnitude)), hn::Set(d, 0x1p120F));
    const auto is_nan = hn::RebindMask(d, hn::Eq(magnitude, hn::Set(d32, 0x7f)));
    const auto sign = hn::ShiftLeft<24>(hn::Xor(bits, magnitude));
    return hn::Or(hn::IfThenElse(is_nan, hn::NaN(d), value), hn::BitCast(d, sign));
  }
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
