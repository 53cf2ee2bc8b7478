#include "kernels/registry.h"

#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "kernels/layer_norm.h"
#include "kernels/reduce.h"

namespace sinew::kernels {

std::span<const KernelRow> kernel_rows() {
  static const KernelRow rows[] = {
      {"reduce", {}, "plain", Isa::kPortable, &reduce_plain()},
      {"reduce", {}, "avx2", Isa::kAvx2, reduce_simd(Isa::kAvx2)},
      {"reduce", {}, "avx512", Isa::kAvx512, reduce_simd(Isa::kAvx512)},
      {"gemm", DType::kF32, "plain", Isa::kPortable, &gemm_plain<float>()},
      {"gemm", DType::kF32, "blocked", Isa::kPortable, gemm_blocked_f32(Isa::kPortable)},
      {"gemm", DType::kF32, "avx2", Isa::kAvx2, gemm_blocked_f32(Isa::kAvx2)},
      {"gemm", DType::kF32, "avx512", Isa::kAvx512, gemm_blocked_f32(Isa::kAvx512)},
      {"gemm", DType::kF64, "plain", Isa::kPortable, &gemm_plain<double>()},
      {"elementwise", DType::kF32, "plain", Isa::kPortable, &elementwise_plain<float>()},
      {"elementwise", DType::kF64, "plain", Isa::kPortable, &elementwise_plain<double>()},
      {"layer_norm", DType::kF32, "plain", Isa::kPortable, &layer_norm_plain<float>()},
      {"layer_norm", DType::kF64, "plain", Isa::kPortable, &layer_norm_plain<double>()},
      {"gelu", DType::kF32, "plain", Isa::kPortable, &gelu_plain<float>()},
      {"gelu", DType::kF64, "plain", Isa::kPortable, &gelu_plain<double>()},
      {"embedding", DType::kF32, "plain", Isa::kPortable, &embedding_plain<float>()},
      {"embedding", DType::kF64, "plain", Isa::kPortable, &embedding_plain<double>()},
      {"cross_entropy", DType::kF32, "plain", Isa::kPortable, &cross_entropy_plain<float>()},
      {"cross_entropy", DType::kF64, "plain", Isa::kPortable, &cross_entropy_plain<double>()},
      {"adamw", DType::kF32, "plain", Isa::kPortable, &adamw_plain<float>()},
      {"adamw", DType::kF64, "plain", Isa::kPortable, &adamw_plain<double>()},
  };
  return rows;
}

bool is_available(const KernelRow& row) {
  return row.functions != nullptr && supports(cpu(), row.isa);
}

}  // namespace sinew::kernels
