// GEMM inner kernels for AVX-512. 14 x 32: 28 sums, 2 vectors of B and a broadcast of A fill 31 of
// the 32 registers. 28 independent chains are more than any processor needs (two multipliers of
// latency 4: 8); the tile is large so that each step of k loads 16 words for 28 multiply-adds.
#include "kernels/gemm_tile.h"

#if defined(__AVX512F__)

// GCC 12 takes the undefined operand inside its own unmasked intrinsics for an uninitialised read.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "kernels/gemm_tile_inl.h"

namespace sinew::kernels {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16;
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
  static Vector broadcast(const float* x) { return _mm512_set1_ps(*x); }
  static Vector multiply(Vector x, Vector y) { return _mm512_mul_ps(x, y); }
  static Vector multiply_add(Vector x, Vector y, Vector z) { return _mm512_fmadd_ps(x, y, z); }

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

const GemmKernels* gemm_kernels_avx512() {
  static constexpr GemmKernels kKernels = make_gemm_kernels<Avx512, 14, 2>();
  return &kKernels;
}

}  // namespace sinew::kernels

#else

namespace sinew::kernels {
const GemmKernels* gemm_kernels_avx512() { return nullptr; }
}  // namespace sinew::kernels

#endif
