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
// the first few. Memory may hold f32, bf16 or f16; arithmetic is on f32.
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
    const hn::RebindToUnsigned<D> d32;
    const hn::RebindToSigned<D> di32;
    const auto bits = hn::BitCast(di32, round_to_bf16(d32, value));
    hn::StoreU(hn::DemoteTo(d16, bits), d16, reinterpret_cast<std::uint16_t*>(to));
  }
};

// `to` must be aligned to the vector. The caller ends with hwy::FlushStream().
struct AllLanesPastCache : AllLanes {
  using AllLanes::store;
  template <class D>
  HWY_INLINE void store(hn::Vec<D> value, D d, hn::TFromD<D>* to) const {
    hn::Stream(value, d, to);
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
};

// Calls body(io, i) on consecutive vectors that cover [0, count).
template <class D, class Body>
HWY_INLINE void for_each_vector(D d, std::int64_t count, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    body(AllLanes{}, i);
    body(AllLanes{}, i + lanes);
  }
  if (i + lanes <= count) {
    body(AllLanes{}, i);
    i += lanes;
  }
  if (i < count) body(FirstLanes{static_cast<std::size_t>(count - i)}, i);
}

// exp(x) for f32. n = round(x log2(e)), r = x - n ln 2 in two parts, then the polynomial
// 1 + r + r^2 q(r) on |r| <= 0.3467, q of degree 4 with relative error 3.7e-9 (coefficients:
// minimax, weighted by exp), times 2^n. Relative error at most 2 units roundoff (1.2e-7), tested. 0
// below -87.33 (where the result would be subnormal), infinity above 88.37, NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> exp_f32(D d, hn::Vec<D> x) {
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
  auto result = hn::Mul(e, power);
  result = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33F)), result);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.37F)), hn::Inf(d), result);
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
