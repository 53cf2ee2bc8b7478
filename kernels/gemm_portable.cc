// GEMM inner kernels in plain C++: vectors of four floats, which every compiler maps to SSE or NEON
// registers. 4 x 8: 8 sums, 2 vectors of B, a broadcast of A and a product fill 12 of the 16
// registers. The product is rounded before the sum: there is no fused multiply-add to count on.
#include "kernels/gemm_tile.h"
#include "kernels/gemm_tile_inl.h"
#include "kernels/vector_portable_inl.h"

namespace sinew::kernels {

const GemmKernels<float>* gemm_kernels_portable() {
  static constexpr auto kKernels = make_gemm_kernels<FloatWords<Portable>, 4, 2>();
  return &kKernels;
}

const GemmKernels<bf16>* gemm_bf16_kernels_portable() {
  static constexpr auto kKernels = make_gemm_kernels<WidenedWords<Portable>, 4, 2>();
  return &kKernels;
}

}  // namespace sinew::kernels
