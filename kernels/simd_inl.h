// What the vector kernels share, compiled once per instruction set: loads and stores of part of a
// vector, 16-bit floats as vectors of f32, the loop over a range, the exponential. Internal to
// x_simd.cc files.
//
// The one rule behind for_each_vector: an element's arithmetic does not depend on where in the
// range it lies. The tail runs the same vector code on a partly filled vector, so a shard computes
// the same bits as the whole.
#if defined(SINEW_KERNELS_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SINEW_KERNELS_SIMD_INL_H
#undef SINEW_KERNELS_SIMD_INL_H
#else
#define SINEW_KERNELS_SIMD_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/streaming.h"
#include "sched/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads `count` < Lanes(d) elements, zeros above; touches nothing beyond them.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_part(D d, const T* from, std::size_t count) {
#if HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  std::memcpy(buffer, from, count * sizeof(T));
  return hn::Load(d, buffer);
#endif
}

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void store_part(hn::Vec<D> value, D d, T* to, std::size_t count) {
#if HWY_TARGET == HWY_AVX3
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(value, d, buffer);
  std::memcpy(to, buffer, count * sizeof(T));
#endif
}

// bf16 bits, as the low half of u32 lanes, of f32 values: round to nearest even, NaN stays NaN.
template <class D32>
HWY_INLINE hn::Vec<D32> round_to_bf16(D32 d32, hn::Vec<hn::RebindToFloat<D32>> value) {
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40));
  return hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(value)), quiet, rounded);
}

// How a kernel reads and writes a vector of f32 (or f64): all lanes, all lanes past the cache, or
// the first few. Memory may hold bf16 where arithmetic is f32. keep() zeroes lanes that hold no
// element, for sums.
struct AllLanes {
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from) const {
    return hn::LoadU(d, from);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const bf16* from) const {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
  }
  template <class D>
  HWY_INLINE void store(hn::Vec<D> value, D d, hn::TFromD<D>* to) const {
    hn::StoreU(value, d, to);
  }
  template <class D>
  HWY_INLINE void store(hn::Vec<D> value, D d, bf16* to) const {
    const hn::Rebind<std::uint16_t, D> d16;
    hn::StoreU(bf16_bits(d16, d, value), d16, reinterpret_cast<std::uint16_t*>(to));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> keep(D, hn::Vec<D> value) const {
    return value;
  }

 protected:
  template <class D16, class D>
  static HWY_INLINE hn::Vec<D16> bf16_bits(D16 d16, D d, hn::Vec<D> value) {
    const hn::RebindToUnsigned<D> d32;
    const hn::RebindToSigned<D> di32;
    (void)d;
    return hn::DemoteTo(d16, hn::BitCast(di32, round_to_bf16(d32, value)));
  }
};

// `to` must be aligned to the vector as it lies in memory. The caller ends with hwy::FlushStream().
struct AllLanesPastCache : AllLanes {
  template <class D>
  HWY_INLINE void store(hn::Vec<D> value, D d, hn::TFromD<D>* to) const {
    hn::Stream(value, d, to);
  }
  template <class D>
  HWY_INLINE void store(hn::Vec<D> value, D d, bf16* to) const {
    const hn::Rebind<std::uint16_t, D> d16;
    hn::Stream(bf16_bits(d16, d, value), d16, reinterpret_cast<std::uint16_t*>(to));
  }
};

struct FirstLanes {
  std::size_t count;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from) const {
    return load_part(d, from, count);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const bf16* from) const {
    bf16 buffer[hn::MaxLanes(d)] = {};
    std::memcpy(buffer, from, count * sizeof(bf16));
    return AllLanes{}.load(d, buffer);
  }
  template <class D>
  HWY_INLINE void store(hn::Vec<D> value, D d, hn::TFromD<D>* to) const {
    store_part(value, d, to, count);
  }
  template <class D>
  HWY_INLINE void store(hn::Vec<D> value, D d, bf16* to) const {
    bf16 buffer[hn::MaxLanes(d)];
    AllLanes{}.store(value, d, buffer);
    std::memcpy(to, buffer, count * sizeof(bf16));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> keep(D d, hn::Vec<D> value) const {
    return hn::IfThenElseZero(hn::FirstN(d, count), value);
  }
};

// Calls body(io, i) on consecutive vectors that cover [0, count).
template <class D, class Body>
HWY_INLINE void for_each_vector(D d, std::int64_t count, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(AllLanes{}, i);
  if (i < count) body(FirstLanes{static_cast<std::size_t>(count - i)}, i);
}

// The same with stores past the cache, for a body whose only output is aligned to the vector at i =
// 0.
template <class D, class Body>
HWY_INLINE void for_each_vector_past_cache(D d, std::int64_t count, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(AllLanesPastCache{}, i);
  if (i < count) body(FirstLanes{static_cast<std::size_t>(count - i)}, i);
}

// For a body whose only output is target[0, count): past the cache when that is worth it. `inputs`
// arrays of the same size are read, none of them is target.
template <class D, typename T, class Body>
HWY_INLINE void for_each_vector_into(D d, T* target, std::int64_t count, std::int64_t inputs,
                                     const Body& body) {
  if (!bypasses_cache((inputs + 1) * count * static_cast<std::int64_t>(sizeof(T)))) {
    for_each_vector(d, count, body);
    return;
  }
  const std::int64_t head = elements_to_alignment(target, static_cast<std::int64_t>(hn::Lanes(d)));
  if (head > 0) body(FirstLanes{static_cast<std::size_t>(head)}, 0);
  for_each_vector_past_cache(d, count - head,
                             [&](auto io, std::int64_t i) HWY_ATTR { body(io, head + i); });
  hwy::FlushStream();
}

// Whether the rows of an output [rows, columns] should bypass the cache, and can, every row being
// aligned.
template <class D, typename T>
HWY_INLINE bool rows_bypass_cache(D d, const T* target, std::int64_t rows, std::int64_t columns,
                                  std::int64_t inputs) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  return bypasses_cache((inputs + 1) * rows * columns * static_cast<std::int64_t>(sizeof(T))) &&
         columns % lanes == 0 && elements_to_alignment(target, lanes) == 0;
}

// The sum of term(io, i) over the vectors that cover [0, count), in four chains; term must keep()
// its lanes.
template <class D, class Term>
HWY_INLINE hn::TFromD<D> sum_over(D d, std::int64_t count, const Term& term) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = sum0;
  auto sum2 = sum0;
  auto sum3 = sum0;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, term(AllLanes{}, i));
    sum1 = hn::Add(sum1, term(AllLanes{}, i + lanes));
    sum2 = hn::Add(sum2, term(AllLanes{}, i + 2 * lanes));
    sum3 = hn::Add(sum3, term(AllLanes{}, i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) sum0 = hn::Add(sum0, term(AllLanes{}, i));
  if (i < count) sum1 = hn::Add(sum1, term(FirstLanes{static_cast<std::size_t>(count - i)}, i));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// exp(x) for f32 x <= 88.37. n = round(x log2(e)), r = x - n ln 2 in two parts, then the polynomial
// 1 + r + r^2 q(r) on |r| <= 0.3467, q of degree 4 with relative error 3.7e-9 (coefficients:
// minimax, weighted by exp), times 2^n. Relative error at most 2 units roundoff (1.2e-7), tested. 0
// below -87.33 (where the result would be subnormal); NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> exp_below_overflow(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // 1.5 * 2^23 + 127: adding it leaves n + 127, the exponent field of 2^n, in the low bits.
  const auto magic = hn::Set(d, 12583039.0F);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), magic);
  const auto n = hn::Sub(shifted, magic);
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  auto r = hn::NegMulAdd(n, hn::Set(d, 0x1.62e43p-1F), x);
  r = hn::NegMulAdd(n, hn::Set(d, -0x1.05c61p-29F), r);
  auto q = hn::MulAdd(r, hn::Set(d, 0x1.6a23dp-10F), hn::Set(d, 0x1.123a2p-7F));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.5558f2p-5F));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.555492p-3F));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.fffffcp-2F));
  const auto e = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0F));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33F)), hn::Mul(e, power));
}

// The same for any x: infinity above 88.37.
template <class D>
HWY_INLINE hn::Vec<D> exp_any(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.37F)), hn::Inf(d), exp_below_overflow(d, x));
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
