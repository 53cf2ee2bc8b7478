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

#include "kernels/element.h"
#include "kernels/float8_simd_inl.h"
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
    if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
      const hn::RebindToUnsigned<D> du;
      return hn::BitCast(d, wrapping_mul_64(du, hn::BitCast(du, a), hn::BitCast(du, b)));
    } else if constexpr (std::is_integral_v<T> && sizeof(T) == 1) {
      const hn::RebindToUnsigned<D> du;
      return hn::BitCast(d, wrapping_mul_8(du, hn::BitCast(du, a), hn::BitCast(du, b)));
    } else {
      return hn::Mul(a, b);
    }
  }
}

// Lanes<T, D>: what elements of type T do in vectors with tag D. Memory is a vector as it lies in
// memory, Wide what it widens to for arithmetic. The primary template is for elements that are
// their own wide form.
template <typename T, class Tag>
struct Lanes {
  using D = Tag;
  using Memory = hn::Vec<D>;
  using Wide = hn::Vec<D>;
  static HWY_INLINE Wide widen(Memory value) { return value; }
  static HWY_INLINE Memory narrow(Wide value) { return value; }
  template <ReduceOp op>
  static HWY_INLINE Wide combine_wide(Wide a, Wide b) {
    return combine<op>(D(), a, b);
  }
};

// Two f32 vectors for one vector of 16-bit elements.
template <class DFloat>
struct WidePair {
  hn::Vec<DFloat> first;
  hn::Vec<DFloat> second;
};

// bf16: a 32-bit lane holds an even and an odd element, which widen in place, without moving
// between lanes.
template <class Tag>
struct Lanes<bf16, Tag> {
  using D = Tag;
  using D32 = hn::Repartition<std::uint32_t, D>;
  using DFloat = hn::RebindToFloat<D32>;
  using Memory = hn::Vec<D>;
  using Wide = WidePair<DFloat>;
  static HWY_INLINE Wide widen(Memory value) {
    const auto bits = hn::BitCast(D32(), value);
    return {hn::BitCast(DFloat(), hn::ShiftLeft<16>(bits)),
            hn::BitCast(DFloat(), hn::And(bits, hn::Set(D32(), 0xffff0000U)))};
  }
  // To nearest even. A NaN needs no care: it came from widened operands or is the default NaN, so
  // its low half is 0, at most 0x8000 is added to it, and nothing carries into the upper half.
  static HWY_INLINE Memory narrow(Wide value) {
    const auto even = hn::ShiftRight<16>(with_half_added(hn::BitCast(D32(), value.first)));
    const auto odd = with_half_added(hn::BitCast(D32(), value.second));
    return hn::BitCast(D(), hn::OrAnd(even, odd, hn::Set(D32(), 0xffff0000U)));
  }
  template <ReduceOp op>
  static HWY_INLINE Wide combine_wide(Wide a, Wide b) {
    return {combine<op>(DFloat(), a.first, b.first), combine<op>(DFloat(), a.second, b.second)};
  }

 private:
  static HWY_INLINE hn::Vec<D32> with_half_added(hn::Vec<D32> bits) {
#if HWY_TARGET <= HWY_AVX3
    // With mask registers the choice of 0x7fff or 0x8000 is one instruction less.
    const auto is_odd = hn::TestBit(bits, hn::Set(D32(), 0x10000));
    const auto half = hn::IfThenElse(is_odd, hn::Set(D32(), 0x8000), hn::Set(D32(), 0x7fff));
    return hn::Add(bits, half);
#else
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(D32(), 1));
    return hn::Add(hn::Add(bits, hn::Set(D32(), 0x7fff)), odd);
#endif
  }
};

// f16, by the processor's conversions, which round to nearest even and keep subnormals, and the
// 8-bit floats. The vector in memory is a half or a quarter of a register, so that it widens to a
// whole one without moving parts about.
template <typename T, class Tag>
struct WidenedLanes {
  using D = Tag;
  using DFloat = hn::Rebind<float, D>;
  using DHalf = hn::Rebind<hwy::float16_t, D>;
  using Memory = hn::Vec<D>;
  using Wide = hn::Vec<DFloat>;
  static HWY_INLINE Wide widen(Memory value) {
    if constexpr (kIsFloat8<T>) {
      return widen_float8<T>(DFloat(), value);
    } else {
      return hn::PromoteTo(DFloat(), hn::BitCast(DHalf(), value));
    }
  }
  static HWY_INLINE Memory narrow(Wide value) {
    if constexpr (kIsFloat8<T>) {
      return narrow_float8<T>(DFloat(), value);
    } else {
      return hn::BitCast(D(), hn::DemoteTo(DHalf(), value));
    }
  }
  template <ReduceOp op>
  static HWY_INLINE Wide combine_wide(Wide a, Wide b) {
    return combine<op>(DFloat(), a, b);
  }
};
template <class Tag>
struct Lanes<f16, Tag> : WidenedLanes<f16, Tag> {};
template <class Tag>
struct Lanes<e4m3, Tag> : WidenedLanes<e4m3, Tag> {};
template <class Tag>
struct Lanes<e5m2, Tag> : WidenedLanes<e5m2, Tag> {};

// How an element lies in memory: narrow floats as their bits.
template <typename T>
using Stored = std::conditional_t<kIsHalf<T>, std::uint16_t,
                                  std::conditional_t<kIsFloat8<T>, std::uint8_t, T>>;

// The vector that fills a register, widened where that is wider, and those of exactly `bytes`.
template <typename T>
using FullLanes = Lanes<T, std::conditional_t<std::is_same_v<T, f16> || kIsFloat8<T>,
                                              hn::Rebind<Stored<T>, hn::ScalableTag<float>>,
                                              hn::ScalableTag<Stored<T>>>>;
template <typename T, std::size_t bytes>
using FixedLanes = Lanes<T, hn::FixedTag<Stored<T>, bytes / sizeof(T)>>;

// Calls two(lanes) for the widest vector of which two, the second ending with the last element,
// cover `bytes`: a call on few elements is then two loads per operand and two stores, with no
// masks. Returns false when there are too few bytes even for that, fewer than 4.
template <typename T, class Two>
HWY_INLINE bool with_two_vectors(std::size_t bytes, const Two& two) {
  constexpr std::size_t kRegister = hn::MaxLanes(typename FullLanes<T>::D()) * sizeof(T);
  if constexpr (kRegister > 32) {
    if (bytes >= 32) return two(FixedLanes<T, 32>()), true;
  }
  if constexpr (kRegister > 16) {
    if (bytes >= 16) return two(FixedLanes<T, 16>()), true;
  }
  if (bytes >= 8) return two(FixedLanes<T, 8>()), true;
  if constexpr (sizeof(T) <= 4) {
    if (bytes >= 4) return two(FixedLanes<T, 4>()), true;
  }
  return false;
}

// The 1 to 3 bytes that are left then, through a word.
template <class D, typename E = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_few(D d, const E* from, std::int64_t count) {
  HWY_ALIGN E word[16 / sizeof(E)] = {};
  for (std::int64_t i = 0; i < count; ++i) word[i] = from[i];
  return hn::LoadU(d, word);
}
template <class D, typename E = hn::TFromD<D>>
HWY_INLINE void store_few(hn::Vec<D> value, D d, E* to, std::int64_t count) {
  HWY_ALIGN E word[16 / sizeof(E)] = {};
  hn::StoreU(value, d, word);
  for (std::int64_t i = 0; i < count; ++i) to[i] = word[i];
}

// Past the cache, where a vector in memory is as long as the processor's shortest such store.
template <class D, typename E = hn::TFromD<D>>
HWY_INLINE void store_past_cache(hn::Vec<D> value, D d, E* to) {
  if constexpr (hn::MaxLanes(D()) * sizeof(E) >= 16) {
    hn::Stream(value, d, to);
  } else {
    hn::StoreU(value, d, to);
  }
}

// Defined in reduce_many_simd.cc: fills in the many-source functions.
void set_many(ReduceFunctions& table);

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
