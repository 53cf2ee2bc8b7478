// AVX-512: the vector type V of the *_inl.h kernels. Included only by files compiled for that
// instruction set; everything is in an unnamed namespace, so that nothing of it can be linked
// elsewhere.
#pragma once

#include <cstdint>

#include "sched/base/dtype.h"

// GCC 12 takes the undefined operand inside its own unmasked intrinsics for an uninitialised read.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

namespace sinew::kernels {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16;
  // Least power of two that does not round to 0 when scaled by, less one.
  static constexpr float kLeastPower = -150;
  using Vector = __m512;
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* x) { return _mm512_loadu_ps(x); }
  static void store(float* x, Vector v) { _mm512_storeu_ps(x, v); }
  static __mmask16 mask(int count) { return static_cast<__mmask16>((1U << count) - 1); }
  static Vector load_partial(const float* x, int count) {
    return _mm512_maskz_loadu_ps(mask(count), x);
  }
  static void store_partial(float* x, Vector v, int count) {
    _mm512_mask_storeu_ps(x, mask(count), v);
  }
  static Vector widen(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static Vector load(const bf16* x) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
  static Vector load_partial(const bf16* x, int count) {
    return widen(_mm256_maskz_loadu_epi16(mask(count), x));
  }
  // To nearest even by adding half a unit less one, and one more when the kept part is odd; a NaN
  // keeps its upper bits and becomes quiet.
  static __m256i narrow(Vector v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(_mm512_srli_epi32(sum, 16), is_nan, quiet));
  }
  static void store(bf16* x, Vector v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), narrow(v));
  }
  static void store_partial(bf16* x, Vector v, int count) {
    _mm256_mask_storeu_epi16(x, mask(count), narrow(v));
  }
  static Vector broadcast(const float* x) { return _mm512_set1_ps(*x); }
  static Vector multiply(Vector x, Vector y) { return _mm512_mul_ps(x, y); }
  static Vector multiply_add(Vector x, Vector y, Vector z) { return _mm512_fmadd_ps(x, y, z); }
  static Vector add(Vector x, Vector y) { return _mm512_add_ps(x, y); }
  static Vector subtract(Vector x, Vector y) { return _mm512_sub_ps(x, y); }
  static Vector divide(Vector x, Vector y) { return _mm512_div_ps(x, y); }
  static Vector min(Vector x, Vector y) { return _mm512_min_ps(x, y); }
  static Vector max(Vector x, Vector y) { return _mm512_max_ps(x, y); }
  static Vector round(Vector x) { return _mm512_roundscale_ps(x, 0); }
  static Vector scale_by_power(Vector x, Vector n) { return _mm512_scalef_ps(x, n); }
  static float sum(Vector x) { return _mm512_reduce_add_ps(x); }
  static Vector select_from(std::int64_t first, Vector x, Vector y) {
    return _mm512_mask_mov_ps(x,
                              mask(static_cast<int>(first < 0    ? 0
                                                    : first > 16 ? 16
                                                                 : first)),
                              y);
  }

  // Four rounds of interleaving: pairs of floats, of doubles, of quarters, of halves.
  static void transpose(Vector (&r)[16]) {
    Vector t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      r[i] = merge_low(t[i], t[i + 2]);
      r[i + 1] = merge_high(t[i], t[i + 2]);
      r[i + 2] = merge_low(t[i + 1], t[i + 3]);
      r[i + 3] = merge_high(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
      t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
      t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
      t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
      r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
  }

 private:
  static Vector merge_low(Vector x, Vector y) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
  }
  static Vector merge_high(Vector x, Vector y) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
  }
};

}  // namespace
}  // namespace sinew::kernels
