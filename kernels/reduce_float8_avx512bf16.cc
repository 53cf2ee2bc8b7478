// The reductions of 8-bit floats for processors with the byte permutations of AVX-512 (VBMI, which
// every processor that counts as AVX512-BF16 has): 64 elements at a time, about one instruction an
// element where reduce_simd.cc takes two and a half.
//
//   - An 8-bit float is a bf16 exactly, so its 7 bits of magnitude look up the two bytes of that
//     bf16 in two tables of 128 entries, each a pair of registers, and the sign is put on top.
//   - Rounding: e4m3 and f32 have the same layout once the exponent is rebiased, which a
//     multiplication by 2^(bias - 127) does, into f32's subnormals where the result is subnormal.
//     That is exact for what arises here: sums of any number of elements and products of two are
//     multiples of 2^-9 (2^-18) for e4m3, of 2^-16 (2^-32) for e5m2, in f32 as well, since a sum
//     that f32 must round is a multiple of more; f32's subnormals then end at 2^-29 and 2^-37. What
//     is left is to drop low bits, to nearest even. A product of more than two may need more bits,
//     and stays where it was.
//   - Beyond the largest value, infinities included, the largest value: clamped before. A NaN
//   passes
//     the clamp as the second operand of the minimum, its code saturates to 0xff on the way to
//     bytes, and its low seven bits are the NaN's.
#include "kernels/reduce.h"

#if defined(__AVX512VBMI__)

// GCC 12 takes the undefined operand that its own intrinsics pass along for a use of it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/float8.h"
#include "kernels/streaming.h"

namespace sinew::kernels {
namespace {

constexpr std::int64_t kBytes = 64;

// The bytes of the bf16 of each magnitude.
struct Bytes {
  std::array<std::uint8_t, 128> low;
  std::array<std::uint8_t, 128> high;
};

template <typename T>
const Bytes& bytes_of() {
  alignas(64) static const Bytes bytes = [] {
    Bytes built{};
    for (std::size_t i = 0; i < 128; ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(to_float(T{static_cast<std::uint8_t>(i)}));
      built.low[i] = static_cast<std::uint8_t>(bits >> 16);
      built.high[i] = static_cast<std::uint8_t>(bits >> 24);
    }
    return built;
  }();
  return bytes;
}

// 64 elements in the order that widening leaves and narrowing expects: v[0] and v[1] are the even
// and odd elements of the lower 8 bytes of each 16, v[2] and v[3] of the upper.
struct Widened {
  __m512 v[4];
};

template <typename Function>
Widened apply(const Function& function, const Widened& a, const Widened& b) {
  return {{function(a.v[0], b.v[0]), function(a.v[1], b.v[1]), function(a.v[2], b.v[2]),
           function(a.v[3], b.v[3])}};
}

// The tables and constants of one call, in registers.
template <typename T>
class Codec {
 public:
  Codec()
      : low_{load(bytes_of<T>().low.data()), load(bytes_of<T>().low.data() + kBytes)},
        high_{load(bytes_of<T>().high.data()), load(bytes_of<T>().high.data() + kBytes)} {}

  [[nodiscard]] Widened widen(const std::uint8_t* from) const {
    const __m512i codes = load(from);
    const __m512i low = _mm512_permutex2var_epi8(low_[0], codes, low_[1]);
    const __m512i magnitude = _mm512_permutex2var_epi8(high_[0], codes, high_[1]);
    constexpr int kFirstOrSecondAndThird = 0xf8;
    const __m512i high =
        _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), kFirstOrSecondAndThird);
    const __m512i lower = _mm512_unpacklo_epi8(low, high);
    const __m512i upper = _mm512_unpackhi_epi8(low, high);
    return {{even(lower), odd(lower), even(upper), odd(upper)}};
  }

  [[nodiscard]] __m512i narrow(const Widened& sum) const {
    // The codes of elements 2i and 2i + 1, the first in bits 0 to 10 of a lane, the other's in bits
    // 16 to 26; the signs at the top of both halves.
    const auto codes = [&](__m512 first, __m512 second) {
      return select_upper(_mm512_srli_epi32(rounded(second), kDropped - 16),
                          _mm512_srli_epi32(rounded(first), kDropped));
    };
    const auto signs = [](__m512 first, __m512 second) {
      return select_upper(_mm512_castps_si512(second),
                          _mm512_srli_epi32(_mm512_castps_si512(first), 16));
    };
    const __m512i magnitude =
        _mm512_packus_epi16(codes(sum.v[0], sum.v[1]), codes(sum.v[2], sum.v[3]));
    const __m512i sign = _mm512_packs_epi16(signs(sum.v[0], sum.v[1]), signs(sum.v[2], sum.v[3]));
    return select(_mm512_set1_epi8(-128), sign, magnitude);
  }

 private:
  using Traits = Float8Traits<T>;
  static constexpr int kDropped = 23 - Traits::kFractionBits;

  static __m512i load(const std::uint8_t* from) { return _mm512_loadu_si512(from); }
  static __m512 even(__m512i bf16s) { return _mm512_castsi512_ps(_mm512_slli_epi32(bf16s, 16)); }
  static __m512 odd(__m512i bf16s) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(bf16s, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
  }
  static __m512i select(__m512i mask, __m512i where_set, __m512i elsewhere) {
    constexpr int kFirstChooses = 0xca;
    return _mm512_ternarylogic_epi32(mask, where_set, elsewhere, kFirstChooses);
  }
  static __m512i select_upper(__m512i upper, __m512i lower) {
    return select(_mm512_set1_epi32(static_cast<int>(0xffff0000U)), upper, lower);
  }
  // The code of |value| in bits kDropped and above, the bits below arbitrary.
  static __m512i rounded(__m512 value) {
    const __m512 clamped = _mm512_min_ps(_mm512_set1_ps(Traits::kLargest), _mm512_abs_ps(value));
    constexpr auto kRebias = std::bit_cast<float>(static_cast<std::uint32_t>(Traits::kBias) << 23);
    const __m512i bits = _mm512_castps_si512(_mm512_mul_ps(clamped, _mm512_set1_ps(kRebias)));
    constexpr int kHalf = 1 << (kDropped - 1);
    const __mmask16 is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(1 << kDropped));
    const __m512i less = _mm512_set1_epi32(kHalf - 1);
    return _mm512_add_epi32(bits, _mm512_mask_mov_epi32(less, is_odd, _mm512_set1_epi32(kHalf)));
  }

  __m512i low_[2];
  __m512i high_[2];
};

// IEEE 754-2019 minimum and maximum; see reduce_simd_inl.h.
__m512 minimum(__m512 a, __m512 b) {
  const __m512 tie = _mm512_or_ps(a, b);
  const __m512 second = _mm512_mask_mov_ps(tie, _mm512_cmp_ps_mask(b, a, _CMP_LT_OQ), b);
  return _mm512_mask_mov_ps(second, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), a);
}
__m512 maximum(__m512 a, __m512 b) {
  const __m512 tie =
      _mm512_mask_and_ps(_mm512_or_ps(a, b), _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), a, b);
  const __m512 second = _mm512_mask_mov_ps(tie, _mm512_cmp_ps_mask(b, a, _CMP_LT_OQ), a);
  return _mm512_mask_mov_ps(second, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), b);
}

template <ReduceOp op>
__m512 combine(__m512 a, __m512 b) {
  if constexpr (op == ReduceOp::kMin) return minimum(a, b);
  if constexpr (op == ReduceOp::kMax) return maximum(a, b);
  if constexpr (op == ReduceOp::kProd) return _mm512_mul_ps(a, b);
  return _mm512_add_ps(a, b);
}

using Sources = std::span<const void* const>;

template <ReduceOp op, typename T>
__m512i combined_at(const Codec<T>& codec, Sources sources, std::int64_t i) {
  const auto source = [&](std::size_t s) {
    return static_cast<const std::uint8_t*>(sources[s]) + i;
  };
  Widened sum = codec.widen(source(0));
  for (std::size_t s = 1; s < sources.size(); ++s)
    sum = apply([](__m512 a, __m512 b) { return combine<op>(a, b); }, sum, codec.widen(source(s)));
  return codec.narrow(sum);
}

// count >= 64. As in reduce_simd.cc the last elements, which may have been done already, are
// combined before anything is written and stored after everything else.
template <ReduceOp op, typename T>
void combine_all(std::uint8_t* target, Sources sources, std::int64_t count) {
  const Codec<T> codec;
  const auto at = [&](std::int64_t i) { return combined_at<op>(codec, sources, i); };
  const __m512i last = at(count - kBytes);
  bool in_place = false;
  for (const void* source : sources) in_place |= source == target;
  std::int64_t i = 0;
  if (!in_place && bypasses_cache(static_cast<std::int64_t>(sources.size() + 1) * count)) {
    _mm512_storeu_si512(target, at(0));
    for (i = elements_to_alignment(target, kBytes); i + kBytes <= count; i += kBytes)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(target + i), at(i));
    _mm_sfence();
  } else {
    for (; i + kBytes <= count; i += kBytes) _mm512_storeu_si512(target + i, at(i));
  }
  _mm512_storeu_si512(target + count - kBytes, last);
}

// What is left to the version before: fewer elements than a register holds, and long products.
const ReduceFunctions& rest() {
  static const ReduceFunctions& functions = *reduce_simd(Isa::kAvx512);
  return functions;
}

template <typename T>
constexpr auto kType = static_cast<std::size_t>(std::is_same_v<T, e4m3> ? DType::kE4m3
                                                                        : DType::kE5m2);

template <ReduceOp op, typename T>
void binary(void* target, const void* left, const void* right, std::int64_t count) {
  if (count < kBytes)
    return rest().binary[kType<T>][static_cast<std::size_t>(op)](target, left, right, count);
  const void* const sources[] = {left, right};
  combine_all<op, T>(static_cast<std::uint8_t*>(target), sources, count);
}

template <ReduceOp op, typename T>
void many(void* target, Sources sources, std::int64_t count) {
  if (count < kBytes || (op == ReduceOp::kProd && sources.size() > 2))
    return rest().many[kType<T>][static_cast<std::size_t>(op)](target, sources, count);
  combine_all<op, T>(static_cast<std::uint8_t*>(target), sources, count);
}

template <ReduceOp op, typename T>
void set(ReduceFunctions& table, ReduceOp as) {
  table.binary[kType<T>][static_cast<std::size_t>(as)] = binary<op, T>;
  table.many[kType<T>][static_cast<std::size_t>(as)] = many<op, T>;
}

template <typename T>
void set_type(ReduceFunctions& table) {
  set<ReduceOp::kSum, T>(table, ReduceOp::kSum);
  set<ReduceOp::kSum, T>(table, ReduceOp::kAvg);
  set<ReduceOp::kProd, T>(table, ReduceOp::kProd);
  set<ReduceOp::kMin, T>(table, ReduceOp::kMin);
  set<ReduceOp::kMax, T>(table, ReduceOp::kMax);
}

}  // namespace

const ReduceFunctions* reduce_float8(Isa isa) {
  if (isa != Isa::kAvx512Bf16 || reduce_simd(Isa::kAvx512) == nullptr) return nullptr;
  static const ReduceFunctions table = [] {
    ReduceFunctions built = rest();
    set_type<e4m3>(built);
    set_type<e5m2>(built);
    return built;
  }();
  return &table;
}

}  // namespace sinew::kernels

#else

namespace sinew::kernels {
const ReduceFunctions* reduce_float8(Isa) { return nullptr; }
}  // namespace sinew::kernels

#endif
