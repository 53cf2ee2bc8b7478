// GEMM inner kernels for AVX-512. 14 x 32: 28 sums, 2 vectors of B and a broadcast of A fill 31 of
// the 32 registers. 28 independent chains are more than any processor needs (two multipliers of
// latency 4: 8); the tile is large so that each step of k loads 16 words for 28 multiply-adds.
#include "kernels/gemm_tile.h"

#if defined(__AVX512F__)

#include "kernels/gemm_tile_inl.h"
#include "kernels/vector_avx512_inl.h"

namespace sinew::kernels {

const GemmKernels<float>* gemm_kernels_avx512() {
  static constexpr auto kKernels = make_gemm_kernels<FloatWords<Avx512>, 14, 2>();
  return &kKernels;
}

const GemmKernels<bf16>* gemm_bf16_kernels_avx512() {
  static constexpr auto kKernels = make_gemm_kernels<WidenedWords<Avx512>, 14, 2>();
  return &kKernels;
}

}  // namespace sinew::kernels

#else

namespace sinew::kernels {
const GemmKernels<float>* gemm_kernels_avx512() { return nullptr; }
const GemmKernels<bf16>* gemm_bf16_kernels_avx512() { return nullptr; }
}  // namespace sinew::kernels

#endif
