// The arithmetic of the vector reductions, compiled once per instruction set: for each element
// type, what a vector in memory widens to, how two wide values combine, and how the result narrows.
// The same operations in the same order as the plain version, so the same bits. Internal to
// reduce_simd.cc and reduce_many_simd.cc.
#if defined(SINEW_KERNELS_REDUCE_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SINEW_KERNELS_REDUCE_SIMD_INL_H
#undef SINEW_KERNELS_REDUCE_SIMD_INL_H
#else
#define SINEW_KERNELS_REDUCE_SIMD_INL_H
#endif

#include <cstdint>
#include <type_traits>

#include "kernels/reduce.h"
#include "kernels/simd_inl.h"
#include "sched/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {

// IEEE 754-2019 minimum. Equal operands differ in the sign of zero at most, where "or" keeps the
// minus; when unordered, "or" of a NaN with anything has all exponent bits and a nonzero fraction:
// a NaN.
template <class D, class V>
HWY_INLINE V minimum(D, V a, V b) {
  return hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Lt(b, a), b, hn::Or(a, b)));
}

// Maximum: "and" of equal operands drops the minus of a zero.
template <class D, class V>
HWY_INLINE V maximum(D, V a, V b) {
  const auto tie = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), hn::Or(a, b));
  return hn::IfThenElse(hn::Lt(a, b), b, hn::IfThenElse(hn::Lt(b, a), a, tie));
}

// The product modulo 2^64 from 32-bit halves: low*low + ((low*high + high*low) << 32).
template <class D64>
HWY_INLINE hn::Vec<D64> wrapping_mul_64(D64 d64, hn::Vec<D64> a, hn::Vec<D64> b) {
  const hn::Repartition<std::uint32_t, D64> d32;
  const auto a32 = hn::BitCast(d32, a);
  const auto b32 = hn::BitCast(d32, b);
  const auto a_high = hn::BitCast(d32, hn::ShiftRight<32>(a));
  const auto b_high = hn::BitCast(d32, hn::ShiftRight<32>(b));
  const auto cross = hn::Add(hn::MulEven(a_high, b32), hn::MulEven(a32, b_high));
  return hn::Add(hn::BitCast(d64, hn::MulEven(a32, b32)), hn::ShiftLeft<32>(cross));
}

// The products modulo 2^8 of even and odd bytes, each in its 16-bit lane.
template <class D8>
HWY_INLINE hn::Vec<D8> wrapping_mul_8(D8 d8, hn::Vec<D8> a, hn::Vec<D8> b) {
  const hn::Repartition<std::uint16_t, D8> d16;
  const auto low = hn::Set(d16, 0x00ff);
  const auto a16 = hn::BitCast(d16, a);
  const auto b16 = hn::BitCast(d16, b);
  const auto even = hn::And(hn::Mul(a16, b16), low);
  const auto odd = hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16));
  return hn::BitCast(d8, hn::Or(even, hn::ShiftLeft<8>(odd)));
}

template <ReduceOp op, class D>
HWY_INLINE hn::Vec<D> combine(D d, hn::Vec<D> a, hn::Vec<D> b) {
  using T = hn::TFromD<D>;
  if constexpr (op == ReduceOp::kSum) {
    return hn::Add(a, b);
  } else if constexpr (op == ReduceOp::kMin) {
    if constexpr (std::is_floating_point_v<T>)
      return minimum(d, a, b);
    else
      return hn::Min(a, b);
  } else if constexpr (op == ReduceOp::kMax) {
    if constexpr (std::is_floating_point_v<T>)
      return maximum(d, a, b);
    else
      return hn::Max(a, b);
  } else {
    static_assert(op == ReduceOp::kProd);
    if constexpr (std::is_same_v<T, std::int64_t>) {
      const hn::RebindToUnsigned<D> du;
      return hn::BitCast(d, wrapping_mul_64(du, hn::BitCast(du, a), hn::BitCast(du, b)));
    } else if constexpr (std::is_same_v<T, std::uint8_t>) {
      return wrapping_mul_8(d, a, b);
    } else {
      return hn::Mul(a, b);
    }
  }
}

// Elements that are their own wide form.
template <typename T>
struct Lanes {
  using D = hn::ScalableTag<T>;
  using Memory = hn::Vec<D>;
  using Wide = hn::Vec<D>;
  static constexpr D d{};
  static HWY_INLINE Wide widen(Memory value) { return value; }
  static HWY_INLINE Memory narrow(Wide value) { return value; }
  template <ReduceOp op>
  static HWY_INLINE Wide combine_wide(Wide a, Wide b) {
    return combine<op>(d, a, b);
  }
};

// Two f32 vectors for one vector of 16-bit elements.
struct WidePair {
  hn::Vec<hn::ScalableTag<float>> first;
  hn::Vec<hn::ScalableTag<float>> second;
};

template <ReduceOp op>
HWY_INLINE WidePair combine_pair(WidePair a, WidePair b) {
  const hn::ScalableTag<float> d;
  return {combine<op>(d, a.first, b.first), combine<op>(d, a.second, b.second)};
}

// bf16: a 32-bit lane holds an even and an odd element, which widen in place, without moving
// between lanes.
template <>
struct Lanes<bf16> {
  using D = hn::ScalableTag<std::uint16_t>;
  using Memory = hn::Vec<D>;
  using Wide = WidePair;
  static constexpr D d{};
  static constexpr hn::ScalableTag<float> d_float{};
  static constexpr hn::ScalableTag<std::uint32_t> d32{};
  static HWY_INLINE Wide widen(Memory value) {
    const auto bits = hn::BitCast(d32, value);
    return {hn::BitCast(d_float, hn::ShiftLeft<16>(bits)),
            hn::BitCast(d_float, hn::And(bits, hn::Set(d32, 0xffff0000U)))};
  }
  static HWY_INLINE Memory narrow(Wide value) {
    const auto even = round_to_bf16(d32, value.first);
    const auto odd = round_to_bf16(d32, value.second);
    return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<16>(odd)));
  }
  template <ReduceOp op>
  static HWY_INLINE Wide combine_wide(Wide a, Wide b) {
    return combine_pair<op>(a, b);
  }
};

// f16: the processor's conversions, which round to nearest even and keep subnormals.
template <>
struct Lanes<f16> {
  using D = hn::ScalableTag<std::uint16_t>;
  using Memory = hn::Vec<D>;
  using Wide = WidePair;
  static constexpr D d{};
  static constexpr hn::ScalableTag<float> d_float{};
  static HWY_INLINE Wide widen(Memory value) {
    const hn::ScalableTag<hwy::float16_t> d_half;
    const hn::Half<hn::ScalableTag<hwy::float16_t>> d_part;
    const auto half = hn::BitCast(d_half, value);
    return {hn::PromoteTo(d_float, hn::LowerHalf(d_part, half)),
            hn::PromoteTo(d_float, hn::UpperHalf(d_part, half))};
  }
  static HWY_INLINE Memory narrow(Wide value) {
    const hn::Half<D> d_part_bits;
    const hn::Half<hn::ScalableTag<hwy::float16_t>> d_part;
    return hn::Combine(d, hn::BitCast(d_part_bits, hn::DemoteTo(d_part, value.second)),
                       hn::BitCast(d_part_bits, hn::DemoteTo(d_part, value.first)));
  }
  template <ReduceOp op>
  static HWY_INLINE Wide combine_wide(Wide a, Wide b) {
    return combine_pair<op>(a, b);
  }
};

// Defined in reduce_many_simd.cc: fills in the many-source functions.
void set_many(ReduceFunctions& table);

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
