// What the vector kernels share, compiled once per instruction set: packs of elements and their
// loads and stores, the loop over a range, row sums, the exponential. Internal to x_simd.cc files.
//
// The one rule behind for_each_pack: an element's arithmetic does not depend on where in the range
// it lies. The tail runs the same vector code on a partly filled pack, so a shard computes the same
// bits as the whole.
#if defined(SINEW_KERNELS_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SINEW_KERNELS_SIMD_INL_H
#undef SINEW_KERNELS_SIMD_INL_H
#else
#define SINEW_KERNELS_SIMD_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/streaming.h"
#include "sched/base/dtype.h"

// The attributes of every lambda in vector code: the instruction set, and inlining early enough
// that what it captures stays in registers.
#ifndef SINEW_LAMBDA
#define SINEW_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads `count` < Lanes(d) elements, zeros above; touches nothing beyond them.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_part(D d, const T* from, std::size_t count) {
#if HWY_TARGET <= HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  std::memcpy(buffer, from, count * sizeof(T));
  return hn::Load(d, buffer);
#endif
}

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void store_part(hn::Vec<D> value, D d, T* to, std::size_t count) {
#if HWY_TARGET <= HWY_AVX3
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(value, d, buffer);
  std::memcpy(to, buffer, count * sizeof(T));
#endif
}

// bf16 bits of f32 lanes in the upper half of each lane, the lower half arbitrary: round to nearest
// even. A quiet NaN, all that arithmetic produces, keeps its upper half.
template <class D32>
HWY_INLINE hn::Vec<D32> round_to_upper_half(D32 d32, hn::Vec<hn::RebindToFloat<D32>> value) {
  const auto bits = hn::BitCast(d32, value);
  const auto is_odd = hn::TestBit(bits, hn::Set(d32, 0x10000));
  const auto half = hn::IfThenElse(is_odd, hn::Set(d32, 0x8000), hn::Set(d32, 0x7fff));
  return hn::Add(bits, hn::IfThenZeroElse(hn::RebindMask(d32, hn::IsNaN(value)), half));
}

// A pack is what a kernel works on at a time: one vector of f32, or for bf16 two, the elements of
// even and of odd index. Those lie in the halves of one 32-bit lane and so widen and narrow without
// moving between lanes.
using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

template <std::size_t vectors>
struct Pack {
  FloatVec v[vectors];
};
template <typename T>
inline constexpr std::size_t kPackVectors = std::is_same_v<T, bf16> ? 2 : 1;
template <typename T>
inline constexpr std::int64_t kPackElements =
    static_cast<std::int64_t>(kPackVectors<T>* hn::MaxLanes(FloatTag()));
template <typename T>
using PackOf = Pack<kPackVectors<T>>;

// function(vectors...) on each vector of the packs.
template <class Function, std::size_t n, class... Packs>
HWY_INLINE Pack<n> apply(const Function& function, const Pack<n>& first, const Packs&... rest) {
  if constexpr (n == 1) {
    return {{function(first.v[0], rest.v[0]...)}};
  } else {
    return {{function(first.v[0], rest.v[0]...), function(first.v[1], rest.v[1]...)}};
  }
}

template <typename T>
HWY_INLINE PackOf<T> same_in_all(float value) {
  const auto v = hn::Set(FloatTag(), value);
  if constexpr (kPackVectors<T> == 1) {
    return {{v}};
  } else {
    return {{v, v}};
  }
}

template <std::size_t n>
HWY_INLINE Pack<n> add_packs(const Pack<n>& a, const Pack<n>& b) {
  return apply([](FloatVec x, FloatVec y) SINEW_LAMBDA { return hn::Add(x, y); }, a, b);
}

template <std::size_t n>
HWY_INLINE float sum_of(const Pack<n>& pack) {
  if constexpr (n == 1) {
    return hn::GetLane(hn::SumOfLanes(FloatTag(), pack.v[0]));
  } else {
    return hn::GetLane(hn::SumOfLanes(FloatTag(), hn::Add(pack.v[0], pack.v[1])));
  }
}

// function(r) with r a constant of its own type for each r in [0, rows): arrays indexed by it stay
// in registers, which those indexed by a loop variable do not.
template <class Function, int... r>
HWY_INLINE void for_each_constant(const Function& function, std::integer_sequence<int, r...>) {
  (function(std::integral_constant<int, r>()), ...);
}
template <int rows, class Function>
HWY_INLINE void for_rows(const Function& function) {
  for_each_constant(function, std::make_integer_sequence<int, rows>());
}

// How packs of elements T come from memory and go back: whole, whole and past the cache, or the
// first few elements. f32 arrays beside bf16 ones (parameter gradients) are split into even and odd
// on the way. keep() zeroes what holds no element, for sums.
template <typename T>
struct Whole {
  HWY_INLINE PackOf<T> load(const float* from) const {
    const FloatTag d;
    PackOf<T> pack;
    if constexpr (kPackVectors<T> == 1) {
      pack.v[0] = hn::LoadU(d, from);
    } else {
      hn::LoadInterleaved2(d, from, pack.v[0], pack.v[1]);
    }
    return pack;
  }
  HWY_INLINE Pack<2> load(const bf16* from) const {
    const hn::ScalableTag<std::uint16_t> d16;
    return from_bits(hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from)));
  }
  HWY_INLINE void store(const PackOf<T>& pack, float* to) const {
    const FloatTag d;
    if constexpr (kPackVectors<T> == 1) {
      hn::StoreU(pack.v[0], d, to);
    } else {
      hn::StoreInterleaved2(pack.v[0], pack.v[1], d, to);
    }
  }
  HWY_INLINE void store(const Pack<2>& pack, bf16* to) const {
    const hn::ScalableTag<std::uint16_t> d16;
    hn::StoreU(bf16_bits(pack), d16, reinterpret_cast<std::uint16_t*>(to));
  }
  HWY_INLINE PackOf<T> keep(const PackOf<T>& pack) const { return pack; }

  static HWY_INLINE Pack<2> from_bits(hn::Vec<hn::ScalableTag<std::uint16_t>> bits16) {
    const hn::ScalableTag<std::uint32_t> d32;
    const auto bits = hn::BitCast(d32, bits16);
    return {{hn::BitCast(FloatTag(), hn::ShiftLeft<16>(bits)),
             hn::BitCast(FloatTag(), hn::And(bits, hn::Set(d32, 0xffff0000U)))}};
  }
  static HWY_INLINE hn::Vec<hn::ScalableTag<std::uint16_t>> bf16_bits(const Pack<2>& pack) {
    const hn::ScalableTag<std::uint16_t> d16;
    const hn::ScalableTag<std::uint32_t> d32;
#if HWY_TARGET < HWY_AVX3
    // Rounds both vectors at once, denormal numbers to 0. Written out, since Highway 1.0 has no
    // target with the instruction; the permutation interleaves the two.
    __m512i halves;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(pack.v[0].raw), "v"(pack.v[1].raw));
    const auto order = hn::Add(hn::Mul(hn::Iota(d32, 0), hn::Set(d32, 0x10001)),
                               hn::Set(d32, hn::MaxLanes(d32) << 16));
    return hn::Vec<decltype(d16)>{_mm512_permutexvar_epi16(order.raw, halves)};
#else
    const auto even = hn::ShiftRight<16>(round_to_upper_half(d32, pack.v[0]));
    const auto odd = round_to_upper_half(d32, pack.v[1]);
    return hn::BitCast(d16, hn::OrAnd(even, odd, hn::Set(d32, 0xffff0000U)));
#endif
  }
};

// `to` must be aligned to the pack as it lies in memory. The caller ends with hwy::FlushStream().
template <typename T>
struct WholePastCache : Whole<T> {
  HWY_INLINE void store(const Pack<1>& pack, float* to) const {
    hn::Stream(pack.v[0], FloatTag(), to);
  }
  HWY_INLINE void store(const Pack<2>& pack, bf16* to) const {
    const hn::ScalableTag<std::uint16_t> d16;
    hn::Stream(Whole<T>::bf16_bits(pack), d16, reinterpret_cast<std::uint16_t*>(to));
  }
};

// The same elements with stores past the cache where they fill a pack.
template <typename T>
HWY_INLINE WholePastCache<T> past_the_cache(const Whole<T>& /*io*/) {
  return {};
}

// The same packs with stores into the cache, for a second output of a body.
template <typename T>
HWY_INLINE const Whole<T>& into_cache(const Whole<T>& io) {
  return io;
}

template <typename T>
struct First {
  std::size_t count;
  HWY_INLINE PackOf<T> load(const float* from) const {
    const FloatTag d;
    if constexpr (kPackVectors<T> == 1) {
      return {{load_part(d, from, count)}};
    } else {
      const auto low = load_part(d, from, in_low());
      const auto high = load_part(d, from + in_low(), count - in_low());
      return {{hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)}};
    }
  }
  HWY_INLINE Pack<2> load(const bf16* from) const {
    const hn::ScalableTag<std::uint16_t> d16;
    return Whole<T>::from_bits(load_part(d16, reinterpret_cast<const std::uint16_t*>(from), count));
  }
  HWY_INLINE void store(const PackOf<T>& pack, float* to) const {
    const FloatTag d;
    if constexpr (kPackVectors<T> == 1) {
      store_part(pack.v[0], d, to, count);
    } else {
      HWY_ALIGN float buffer[2 * hn::MaxLanes(d)];
      hn::StoreInterleaved2(pack.v[0], pack.v[1], d, buffer);
      store_part(hn::Load(d, buffer), d, to, in_low());
      store_part(hn::Load(d, buffer + hn::MaxLanes(d)), d, to + in_low(), count - in_low());
    }
  }
  HWY_INLINE void store(const Pack<2>& pack, bf16* to) const {
    const hn::ScalableTag<std::uint16_t> d16;
    store_part(Whole<T>::bf16_bits(pack), d16, reinterpret_cast<std::uint16_t*>(to), count);
  }
  HWY_INLINE PackOf<T> keep(const PackOf<T>& pack) const {
    const FloatTag d;
    if constexpr (kPackVectors<T> == 1) {
      return {{hn::IfThenElseZero(hn::FirstN(d, count), pack.v[0])}};
    } else {
      return {{hn::IfThenElseZero(hn::FirstN(d, (count + 1) / 2), pack.v[0]),
               hn::IfThenElseZero(hn::FirstN(d, count / 2), pack.v[1])}};
    }
  }

 private:
  // Of two vectors of f32 in memory, how many elements the first holds.
  [[nodiscard]] HWY_INLINE std::size_t in_low() const {
    return count < hn::MaxLanes(FloatTag()) ? count : hn::MaxLanes(FloatTag());
  }
};

template <typename T>
HWY_INLINE const First<T>& past_the_cache(const First<T>& io) {
  return io;
}
template <typename T>
HWY_INLINE const First<T>& into_cache(const First<T>& io) {
  return io;
}

template <typename T>
HWY_INLINE void fetch_second_level(const T* x) {
  __builtin_prefetch(x, 0, 2);
}
// Of an array that is read in order: 16 KiB ahead. Norms took the same with 8 to 64 KiB.
template <typename T>
HWY_INLINE void fetch_ahead(const T* x) {
  fetch_second_level(x + 16384 / sizeof(T));
}

// i + by, eight cycles after i for each line of a pack, by way of multiplications by one. A core
// copies a line from and to memory in nine. Loops that compute faster ran ahead of it as far as the
// processor's window reaches, what they fetched stood before what they needed, and all took longer:
// with indices that come no sooner than memory, 4096 x 2048 RMS norm f32 takes 1.3 for 1.75 ms, a
// lookup of 8192 x 768 1.1 for 1.3, with positions 1.2 for 1.7. Seven and nine cycles are 0 to 7 %
// worse.
template <typename T>
HWY_INLINE std::int64_t paced(std::int64_t i, std::int64_t by) {
#if HWY_ARCH_X86
  if constexpr (kPackElements<T> * sizeof(T) == 64) {
    asm volatile("imul $1, %0, %0; imul $1, %0, %0; add $0, %0; add %1, %0" : "+r"(i) : "ri"(by));
  } else {
    asm volatile("imul $1, %0, %0; add %1, %0" : "+r"(i) : "ri"(by));
  }
  return i;
#else
  return i + by;
#endif
}

// Calls body(io, i) on consecutive packs that cover [0, count).
template <typename T, class Body>
HWY_INLINE void for_each_pack(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kPackElements<T> <= count; i += kPackElements<T>) body(Whole<T>{}, i);
  if (i < count) body(First<T>{static_cast<std::size_t>(count - i)}, i);
}

// The same with stores past the cache, for a body whose only output is aligned to the pack at i =
// 0.
template <typename T, class Body>
HWY_INLINE void for_each_pack_past_cache(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kPackElements<T> <= count; i = paced<T>(i, kPackElements<T>))
    body(WholePastCache<T>{}, i);
  if (i < count) body(First<T>{static_cast<std::size_t>(count - i)}, i);
}

// For a body whose only output is target[0, count): past the cache when that is worth it. `inputs`
// arrays of the same size are read, none of them is target.
template <typename T, class Body>
HWY_INLINE void for_each_pack_into(T* target, std::int64_t count, std::int64_t inputs,
                                   const Body& body) {
  if (!bypasses_cache((inputs + 1) * count * static_cast<std::int64_t>(sizeof(T)))) {
    for_each_pack<T>(count, body);
    return;
  }
  const std::int64_t head = elements_to_alignment(target, kPackElements<T>);
  if (head > 0) body(First<T>{static_cast<std::size_t>(head)}, 0);
  for_each_pack_past_cache<T>(count - head,
                              [&](auto io, std::int64_t i) SINEW_LAMBDA { body(io, head + i); });
  hwy::FlushStream();
}

// Whether the rows of an output [rows, columns] should bypass the cache, and can, every row being
// aligned.
template <typename T>
HWY_INLINE bool rows_bypass_cache(const T* target, std::int64_t rows, std::int64_t columns,
                                  std::int64_t inputs) {
  return bypasses_cache((inputs + 1) * rows * columns * static_cast<std::int64_t>(sizeof(T))) &&
         columns % kPackElements<T> == 0 && elements_to_alignment(target, kPackElements<T>) == 0;
}

// The sum over the packs that cover [0, count), in four chains: add(io, i, sum) is the sum with
// pack i added, of which it must keep() the elements.
template <typename T, class Add>
HWY_INLINE float sum_over(std::int64_t count, const Add& add) {
  constexpr std::int64_t kStep = kPackElements<T>;
  auto sum0 = same_in_all<T>(0.0F);
  auto sum1 = sum0;
  auto sum2 = sum0;
  auto sum3 = sum0;
  const Whole<T> io;
  std::int64_t i = 0;
  for (; i + 4 * kStep <= count; i += 4 * kStep) {
    sum0 = add(io, i, sum0);
    sum1 = add(io, i + kStep, sum1);
    sum2 = add(io, i + 2 * kStep, sum2);
    sum3 = add(io, i + 3 * kStep, sum3);
  }
  for (; i + kStep <= count; i += kStep) sum0 = add(io, i, sum0);
  if (i < count) sum1 = add(First<T>{static_cast<std::size_t>(count - i)}, i, sum1);
  return sum_of(add_packs(add_packs(sum0, sum1), add_packs(sum2, sum3)));
}

// 2^r, 1 at r = 0, for 0 <= r < 1 with AVX-512, |r| <= 1/2 with AVX2: a polynomial, minimax in the
// relative error, which with u = 2^-24 is 1.4 u for f32, degree 6, and 50 u for bf16, degree 4.
template <typename T>
HWY_INLINE FloatVec exp2_of_fraction(FloatVec r) {
  const FloatTag d;
  constexpr bool kFromZero = HWY_TARGET <= HWY_AVX3;
  const auto constant = [&](float from_zero, float centred)
                            SINEW_LAMBDA { return hn::Set(d, kFromZero ? from_zero : centred); };
  FloatVec e;
  if constexpr (std::is_same_v<T, bf16>) {
    e = hn::MulAdd(r, constant(0x1.b7f74ap-7F, 0x1.3a02ccp-7F),
                   constant(0x1.abf85ep-5F, 0x1.c9fc46p-5F));
    e = hn::MulAdd(e, r, constant(0x1.ee2452p-3F, 0x1.ec0378p-3F));
    e = hn::MulAdd(e, r, constant(0x1.62d6c6p-1F, 0x1.62e12cp-1F));
  } else {
    e = hn::MulAdd(r, constant(0x1.c54186p-13F, 0x1.41fbbcp-13F),
                   constant(0x1.46d648p-10F, 0x1.5f3e52p-10F));
    e = hn::MulAdd(e, r, constant(0x1.3d0b92p-7F, 0x1.3b2d4cp-7F));
    e = hn::MulAdd(e, r, constant(0x1.c68912p-5F, 0x1.c6aee8p-5F));
    e = hn::MulAdd(e, r, constant(0x1.ebfd58p-3F, 0x1.ebfbdcp-3F));
    e = hn::MulAdd(e, r, constant(0x1.62e42cp-1F, 0x1.62e43p-1F));
  }
  return hn::MulAdd(e, r, hn::Set(d, 1.0F));
}

#if HWY_TARGET > HWY_AVX3
// 2^t for |t| <= 126, the error of exp2_of_fraction; NaN stays NaN; anything for larger |t|. What
// is left of the nearest whole number is exact. A long chain of operations is what takes time here:
// the processor has room for few vectors' chains at once.
template <typename T>
HWY_INLINE FloatVec exp2_in_range(FloatVec t) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  // 1.5 * 2^23 + 127: leaves n + 127, the exponent field of 2^n, in the low bits.
  const auto magic = hn::Set(d, 12583039.0F);
  const auto shifted = hn::Add(t, magic);
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::Mul(exp2_of_fraction<T>(hn::Sub(t, hn::Sub(shifted, magic))), power);
}
#endif

// exp(x) from x kExpScale, for |x| <= 87, which saves what multiplies by kExpScale with another
// factor a rounding. With u = 2^-24 the rounding of the product adds a relative error of u |x|, the
// rest at most 2 u, of bf16 with AVX2 50 u.
// AVX-512: x 16 log2(e) = n + r with n whole is exact; the cubic Taylor polynomial in r, |r| <=
// 1/2, has relative error below 1e-8; times 2^(n/16), whose fraction comes from a table of 16 held
// in a register: entry j is the bits of 2^(j/16) less j << 19, so that adding n << 19 = ((n - j)/16
// << 23) + (j << 19) leaves the bits of 2^(n/16). The permutation reads the low four bits of its
// index.
#if HWY_TARGET <= HWY_AVX3
constexpr float kExpScale = 23.0831206542F;  // 16 log2(e)
template <typename T>
HWY_INLINE FloatVec exp_of_scaled(FloatVec x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  HWY_ALIGN static constexpr std::int32_t kPowers[16] = {
      0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532,
      0x3f75fed7, 0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c,
      0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d};
  const auto magic = hn::Set(d, 12582912.0F);  // 1.5 * 2^23: leaves n in the low bits
  const auto shifted = hn::Add(x, magic);
  const auto r = hn::Sub(x, hn::Sub(shifted, magic));
  auto e = hn::MulAdd(r, hn::Set(d, 1.35506997e-05F), hn::Set(d, 9.38384793e-04F));
  e = hn::MulAdd(e, r, hn::Set(d, 4.33216988e-02F));
  e = hn::MulAdd(e, r, hn::Set(d, 1.0F));
  const auto index = hn::BitCast(di, shifted);
  const hn::Vec<decltype(di)> fraction{
      _mm512_permutexvar_epi32(index.raw, hn::Load(di, kPowers).raw)};
  return hn::Mul(e, hn::BitCast(d, hn::Add(fraction, hn::ShiftLeft<19>(index))));
}
#else
constexpr float kExpScale = 1.44269504089F;  // log2(e)
template <typename T>
HWY_INLINE FloatVec exp_of_scaled(FloatVec x) {
  return exp2_in_range<T>(x);
}
#endif

// exp(x) for any x <= 87, 0 where it underflows; of -infinity 0, exp(0) = 1: 2^t, t = x log2(e).
// With u = 2^-24 the rounding of t adds a relative error of u |x| to that of exp2_of_fraction.
// AVX2: 0 below -87.
template <typename T>
HWY_INLINE FloatVec exp_or_zero(FloatVec x) {
  const FloatTag d;
  const auto t = hn::Mul(x, hn::Set(d, 0x1.715476p+0F));
#if HWY_TARGET <= HWY_AVX3
  constexpr int kBelow = 9;  // what is left of the whole number below
  const FloatVec r{_mm512_reduce_ps(t.raw, kBelow)};
  return FloatVec{_mm512_scalef_ps(exp2_of_fraction<T>(r).raw, t.raw)};
#else
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0F)), exp2_in_range<T>(t));
#endif
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
