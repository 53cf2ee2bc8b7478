// Attention inner kernels for AVX-512.
#include "kernels/attention_tile.h"

#if defined(__AVX512F__)

#include "kernels/attention_tile_inl.h"
#include "kernels/vector_avx512_inl.h"

namespace sinew::kernels {

const AttentionKernels<float>* attention_kernels_avx512() {
  static const auto kernels =
      make_attention_kernels<FloatWords<Avx512>, 14, 2>(gemm_kernels_avx512());
  return &kernels;
}

const AttentionKernels<bf16>* attention_bf16_kernels_avx512() {
  static const auto kernels =
      make_attention_kernels<WidenedWords<Avx512>, 14, 2>(gemm_bf16_kernels_avx512());
  return &kernels;
}

}  // namespace sinew::kernels

#else

namespace sinew::kernels {
const AttentionKernels<float>* attention_kernels_avx512() { return nullptr; }
const AttentionKernels<bf16>* attention_bf16_kernels_avx512() { return nullptr; }
}  // namespace sinew::kernels

#endif
