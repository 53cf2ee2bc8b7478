// GEMM inner kernels for AVX512-BF16: the tile of gemm_avx512.cc on words of two bf16, 64
// operations an instruction.
#include "kernels/gemm_tile.h"

#if defined(__AVX512BF16__)

#include "kernels/vector_avx512bf16_inl.h"

namespace sinew::kernels {

const GemmKernels<bf16>* gemm_bf16_kernels_avx512bf16() {
  static constexpr auto kKernels = make_gemm_kernels<PairWords, 14, 2>();
  return &kKernels;
}

}  // namespace sinew::kernels

#else

namespace sinew::kernels {
const GemmKernels<bf16>* gemm_bf16_kernels_avx512bf16() { return nullptr; }
}  // namespace sinew::kernels

#endif
