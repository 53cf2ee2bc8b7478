// Attention inner kernels for plain C++.
#include "kernels/attention_tile.h"
#include "kernels/attention_tile_inl.h"
#include "kernels/vector_portable_inl.h"

namespace sinew::kernels {

const AttentionKernels<float>* attention_kernels_portable() {
  static const auto kernels =
      make_attention_kernels<FloatWords<Portable>, 4, 2>(gemm_kernels_portable());
  return &kernels;
}

const AttentionKernels<bf16>* attention_bf16_kernels_portable() {
  static const auto kernels =
      make_attention_kernels<WidenedWords<Portable>, 4, 2>(gemm_bf16_kernels_portable());
  return &kernels;
}

}  // namespace sinew::kernels
