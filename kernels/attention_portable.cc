// Attention inner kernels for plain C++.
#include "kernels/attention_tile.h"
#include "kernels/attention_tile_inl.h"
#include "kernels/vector_portable_inl.h"

namespace sinew::kernels {

const AttentionKernels* attention_kernels_portable() {
  static const AttentionKernels kernels =
      make_attention_kernels<Portable, 4, 2>(gemm_kernels_portable());
  return &kernels;
}

}  // namespace sinew::kernels
