// Attention inner kernels for AVX2 and FMA.
#include "kernels/attention_tile.h"

#if defined(__AVX2__) && defined(__FMA__)

#include "kernels/attention_tile_inl.h"
#include "kernels/vector_avx2_inl.h"

namespace sinew::kernels {

const AttentionKernels<float>* attention_kernels_avx2() {
  static const auto kernels = make_attention_kernels<FloatWords<Avx2>, 6, 2>(gemm_kernels_avx2());
  return &kernels;
}

const AttentionKernels<bf16>* attention_bf16_kernels_avx2() {
  static const auto kernels =
      make_attention_kernels<WidenedWords<Avx2>, 6, 2>(gemm_bf16_kernels_avx2());
  return &kernels;
}

}  // namespace sinew::kernels

#else

namespace sinew::kernels {
const AttentionKernels<float>* attention_kernels_avx2() { return nullptr; }
const AttentionKernels<bf16>* attention_bf16_kernels_avx2() { return nullptr; }
}  // namespace sinew::kernels

#endif
