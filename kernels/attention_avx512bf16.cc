// Attention inner kernels for AVX512-BF16.
#include "kernels/attention_tile.h"

#if defined(__AVX512BF16__)

#include "kernels/attention_tile_inl.h"
#include "kernels/vector_avx512bf16_inl.h"

namespace sinew::kernels {

const AttentionKernels<bf16>* attention_bf16_kernels_avx512bf16() {
  static const auto kernels =
      make_attention_kernels<PairWords, 14, 2>(gemm_bf16_kernels_avx512bf16());
  return &kernels;
}

}  // namespace sinew::kernels

#else

namespace sinew::kernels {
const AttentionKernels<bf16>* attention_bf16_kernels_avx512bf16() { return nullptr; }
}  // namespace sinew::kernels

#endif
