// The bf16 dot product of AVX512-BF16 as a word type of the GEMM kernels. Included only by files
// compiled for that instruction set; everything is in an unnamed namespace.
#pragma once

#include <bit>

#include "kernels/gemm_tile_inl.h"
#include "kernels/vector_avx512_inl.h"

namespace sinew::kernels {
namespace {

// Two bf16 that follow each other along k; a dot product adds both products of a pair to the sum.
struct PairWords {
  using V = Avx512;
  using Element = bf16;
  using Vector = V::Vector;
  static constexpr int kElements = 2;
  static Vector along(const bf16* x, std::int64_t elements) {
    if (elements >= 2 * V::kLanes) return _mm512_loadu_ps(x);
    const auto present = static_cast<__mmask32>((std::uint64_t{1} << elements) - 1);
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(present, x));
  }
  static Vector across(const bf16* x, std::int64_t stride, std::int64_t rows, int columns) {
    const __m512i low = load_row(x, columns);
    if (rows < 2) return _mm512_castsi512_ps(low);
    const __m512i high = _mm512_slli_epi32(load_row(x + stride, columns), 16);
    return _mm512_castsi512_ps(_mm512_or_si512(low, high));
  }
  static Vector accumulate(Vector left, Vector right, Vector sum) {
    return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(left), std::bit_cast<__m512bh>(right));
  }

  static void store(bf16* x, Vector v) {
    const auto bits = std::bit_cast<__m256i>(_mm512_cvtneps_pbh(v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), bits);
  }
  // Lane i of both as one word.
  static Vector pair(Vector low, Vector high) {
    const __m512i lower = _mm512_cvtepu16_epi32(std::bit_cast<__m256i>(_mm512_cvtneps_pbh(low)));
    const __m512i upper = _mm512_cvtepu16_epi32(std::bit_cast<__m256i>(_mm512_cvtneps_pbh(high)));
    return _mm512_castsi512_ps(_mm512_or_si512(lower, _mm512_slli_epi32(upper, 16)));
  }

 private:
  static __m512i load_row(const bf16* x, int columns) {
    if (columns == V::kLanes)
      return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(V::mask(columns), x));
  }
};

}  // namespace
}  // namespace sinew::kernels
