// Attention inner kernels for AVX2 and FMA.
#include "kernels/attention_tile.h"

#if defined(__AVX2__) && defined(__FMA__)

#include "kernels/attention_tile_inl.h"
#include "kernels/vector_avx2_inl.h"

namespace sinew::kernels {

const AttentionKernels* attention_kernels_avx2() {
  static const AttentionKernels kernels = make_attention_kernels<Avx2, 6, 2>(gemm_kernels_avx2());
  return &kernels;
}

}  // namespace sinew::kernels

#else

namespace sinew::kernels {
const AttentionKernels* attention_kernels_avx2() { return nullptr; }
}  // namespace sinew::kernels

#endif
