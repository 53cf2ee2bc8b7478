// GEMM inner kernels for AVX2 and FMA. 6 x 16: 12 sums, 2 vectors of B and a broadcast of A fill 15
// of the 16 registers; two multipliers of latency 4 (or 5) need 8 (10) independent chains.
#include "kernels/gemm_tile.h"

#if defined(__AVX2__) && defined(__FMA__)

#include "kernels/gemm_tile_inl.h"
#include "kernels/vector_avx2_inl.h"

namespace sinew::kernels {

const GemmKernels<float>* gemm_kernels_avx2() {
  static constexpr auto kKernels = make_gemm_kernels<FloatWords<Avx2>, 6, 2>();
  return &kKernels;
}

const GemmKernels<bf16>* gemm_bf16_kernels_avx2() {
  static constexpr auto kKernels = make_gemm_kernels<WidenedWords<Avx2>, 6, 2>();
  return &kKernels;
}

}  // namespace sinew::kernels

#else

namespace sinew::kernels {
const GemmKernels<float>* gemm_kernels_avx2() { return nullptr; }
const GemmKernels<bf16>* gemm_bf16_kernels_avx2() { return nullptr; }
}  // namespace sinew::kernels

#endif
