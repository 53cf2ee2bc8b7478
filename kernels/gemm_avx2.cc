// GEMM inner kernels for AVX2 and FMA. 6 x 16: 12 sums, 2 vectors of B and a broadcast of A fill 15
// of the 16 registers; two multipliers of latency 4 (or 5) need 8 (10) independent chains.
#include "kernels/gemm_tile.h"

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

#include "kernels/gemm_tile_inl.h"

namespace sinew::kernels {
namespace {

struct Avx2 {
  static constexpr int kLanes = 8;
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
  static void store_partial(float* x, Vector v, int count) {
    _mm256_maskstore_ps(x, mask(count), v);
  }
  static Vector broadcast(const float* x) { return _mm256_broadcast_ss(x); }
  static Vector multiply(Vector x, Vector y) { return _mm256_mul_ps(x, y); }
  static Vector multiply_add(Vector x, Vector y, Vector z) { return _mm256_fmadd_ps(x, y, z); }

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
  static Vector merge_low(Vector x, Vector y) {
    return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(x), _mm256_castps_pd(y)));
  }
  static Vector merge_high(Vector x, Vector y) {
    return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(x), _mm256_castps_pd(y)));
  }
};

}  // namespace

const GemmKernels* gemm_kernels_avx2() {
  static constexpr GemmKernels kKernels = make_gemm_kernels<Avx2, 6, 2>();
  return &kKernels;
}

}  // namespace sinew::kernels

#else

namespace sinew::kernels {
const GemmKernels* gemm_kernels_avx2() { return nullptr; }
}  // namespace sinew::kernels

#endif
