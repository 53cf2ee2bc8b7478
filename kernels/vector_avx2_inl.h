// AVX2 and FMA: the vector type V of the *_inl.h kernels. Included only by files compiled for that
// instruction set; everything is in an unnamed namespace, so that nothing of it can be linked
// elsewhere.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "sched/base/dtype.h"

namespace sinew::kernels {
namespace {

struct Avx2 {
  static constexpr int kLanes = 8;
  // scale_by_power makes 0 of 2^-127, whose exponent bits are 0.
  static constexpr float kLeastPower = -127;
  using Vector = __m256;
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* x) { return _mm256_loadu_ps(x); }
  static void store(float* x, Vector v) { _mm256_storeu_ps(x, v); }
  static __m256i mask(int count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
  }
  static Vector load_partial(const float* x, int count) {
    return _mm256_maskload_ps(x, mask(count));
  }
  // In halves, quarters and eighths: processors of the Zen kind run the masked store as microcode.
  static void store_partial(float* x, Vector v, int count) {
    if (count == kLanes) return store(x, v);
    __m128 rest = _mm256_castps256_ps128(v);
    if (count & 4) {
      _mm_storeu_ps(x, rest);
      x += 4;
      rest = _mm256_extractf128_ps(v, 1);
    }
    if (count & 2) {
      _mm_storel_pi(reinterpret_cast<__m64*>(x), rest);
      x += 2;
      rest = _mm_movehl_ps(rest, rest);
    }
    if (count & 1) _mm_store_ss(x, rest);
  }
  static Vector load(const bf16* x) {
    return widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  }
  static Vector load_partial(const bf16* x, int count) {
    if (count == kLanes) return load(x);
    std::uint64_t upper = 0;
    if (count & 1) upper = x[count - 1].bits;
    if (count & 2) {
      std::uint32_t two;
      std::memcpy(&two, x + (count & 4), sizeof(two));
      upper = upper << 32 | two;
    }
    __m128i bits = _mm_cvtsi64_si128(static_cast<std::int64_t>(upper));
    if (count & 4)
      bits = _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x)), bits);
    return widened(bits);
  }
  // To nearest even by adding half a unit less one, and one more when the kept part is odd; a NaN
  // keeps its upper bits and becomes quiet.
  static void store(bf16* x, Vector v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, is_nan);
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(x), halves);
  }
  static void store_partial(bf16* x, Vector v, int count) {
    bf16 whole[kLanes];
    store(whole, v);
    std::memcpy(x, whole, static_cast<std::size_t>(count) * sizeof(bf16));
  }
  static Vector broadcast(const float* x) { return _mm256_broadcast_ss(x); }
  static Vector multiply(Vector x, Vector y) { return _mm256_mul_ps(x, y); }
  static Vector multiply_add(Vector x, Vector y, Vector z) { return _mm256_fmadd_ps(x, y, z); }
  static Vector add(Vector x, Vector y) { return _mm256_add_ps(x, y); }
  static Vector subtract(Vector x, Vector y) { return _mm256_sub_ps(x, y); }
  static Vector divide(Vector x, Vector y) { return _mm256_div_ps(x, y); }
  static Vector min(Vector x, Vector y) { return _mm256_min_ps(x, y); }
  static Vector max(Vector x, Vector y) { return _mm256_max_ps(x, y); }
  static Vector round(Vector x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Vector scale_by_power(Vector x, Vector n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  static float sum(Vector x) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  static Vector select_from(std::int64_t first, Vector x, Vector y) {
    const int count = static_cast<int>(first < 0 ? 0 : first > 8 ? 8 : first);
    return _mm256_blendv_ps(x, y, _mm256_castsi256_ps(mask(count)));
  }

  // Three rounds of interleaving: pairs of floats, of doubles, of halves.
  static void transpose(Vector (&r)[8]) {
    Vector t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      r[i] = merge_low(t[i], t[i + 2]);
      r[i + 1] = merge_high(t[i], t[i + 2]);
      r[i + 2] = merge_low(t[i + 1], t[i + 3]);
      r[i + 3] = merge_high(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
      t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) r[i] = t[i];
  }

 private:
  static Vector widened(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static Vector merge_low(Vector x, Vector y) {
    return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(x), _mm256_castps_pd(y)));
  }
  static Vector merge_high(Vector x, Vector y) {
    return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(x), _mm256_castps_pd(y)));
  }
};

}  // namespace
}  // namespace sinew::kernels
