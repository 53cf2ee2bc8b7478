#include "kernels/registry.h"

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "kernels/layer_norm.h"
#include "kernels/mixed_adamw.h"
#include "kernels/reduce.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace sinew::kernels {

namespace {

// A file compiled for an instruction set may use it also where it only fills its table, so a
// processor without the set must not even ask.
template <typename Functions>
const Functions* on_this_cpu(const Functions* (*version)(Isa), Isa isa) {
  return supports(cpu(), isa) ? version(isa) : nullptr;
}

}  // namespace

std::span<const KernelRow> kernel_rows() {
  // clang-format off
  static const KernelRow rows[] = {
      {"reduce", {}, "plain", Isa::kPortable, &reduce_plain()},
      {"reduce", {}, "avx2", Isa::kAvx2, on_this_cpu(reduce_simd, Isa::kAvx2)},
      {"reduce", {}, "avx512", Isa::kAvx512, on_this_cpu(reduce_simd, Isa::kAvx512)},
      {"reduce", {}, "avx512bf16", Isa::kAvx512Bf16, on_this_cpu(reduce_float8, Isa::kAvx512Bf16)},
      {"gemm", DType::kF32, "plain", Isa::kPortable, &gemm_plain<float>()},
      {"gemm", DType::kF32, "blocked", Isa::kPortable, gemm_fast<float>(Isa::kPortable)},
      {"gemm", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(gemm_fast<float>, Isa::kAvx2)},
      {"gemm", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(gemm_fast<float>, Isa::kAvx512)},
      {"gemm", DType::kF64, "plain", Isa::kPortable, &gemm_plain<double>()},
      {"gemm", DType::kF64, "avx2", Isa::kAvx2, on_this_cpu(gemm_f64_simd, Isa::kAvx2)},
      {"gemm", DType::kF64, "avx512", Isa::kAvx512, on_this_cpu(gemm_f64_simd, Isa::kAvx512)},
      {"gemm", DType::kBf16, "plain", Isa::kPortable, &gemm_plain<bf16>()},
      {"gemm", DType::kBf16, "blocked", Isa::kPortable, gemm_fast<bf16>(Isa::kPortable)},
      {"gemm", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(gemm_fast<bf16>, Isa::kAvx2)},
      {"gemm", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(gemm_fast<bf16>, Isa::kAvx512)},
      {"gemm", DType::kBf16, "avx512bf16", Isa::kAvx512Bf16, on_this_cpu(gemm_fast<bf16>, Isa::kAvx512Bf16)},
      {"attention", DType::kF32, "plain", Isa::kPortable, &attention_plain<float>()},
      {"attention", DType::kF32, "blocked", Isa::kPortable, attention_fast<float>(Isa::kPortable)},
      {"attention", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(attention_fast<float>, Isa::kAvx2)},
      {"attention", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(attention_fast<float>, Isa::kAvx512)},
      {"attention", DType::kF64, "plain", Isa::kPortable, &attention_plain<double>()},
      {"attention", DType::kBf16, "plain", Isa::kPortable, &attention_plain<bf16>()},
      {"attention", DType::kBf16, "blocked", Isa::kPortable, attention_fast<bf16>(Isa::kPortable)},
      {"attention", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(attention_fast<bf16>, Isa::kAvx2)},
      {"attention", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(attention_fast<bf16>, Isa::kAvx512)},
      {"attention", DType::kBf16, "avx512bf16", Isa::kAvx512Bf16, on_this_cpu(attention_fast<bf16>, Isa::kAvx512Bf16)},
      {"elementwise", DType::kF32, "plain", Isa::kPortable, &elementwise_plain<float>()},
      {"elementwise", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(elementwise_simd<float>, Isa::kAvx2)},
      {"elementwise", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(elementwise_simd<float>, Isa::kAvx512)},
      {"elementwise", DType::kF64, "plain", Isa::kPortable, &elementwise_plain<double>()},
      {"elementwise", DType::kBf16, "plain", Isa::kPortable, &elementwise_plain<bf16>()},
      {"elementwise", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(elementwise_simd<bf16>, Isa::kAvx2)},
      {"elementwise", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(elementwise_simd<bf16>, Isa::kAvx512)},
      {"layer_norm", DType::kF32, "plain", Isa::kPortable, &layer_norm_plain<float>()},
      {"layer_norm", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(layer_norm_simd<float>, Isa::kAvx2)},
      {"layer_norm", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(layer_norm_simd<float>, Isa::kAvx512)},
      {"layer_norm", DType::kF64, "plain", Isa::kPortable, &layer_norm_plain<double>()},
      {"layer_norm", DType::kBf16, "plain", Isa::kPortable, &layer_norm_plain<bf16>()},
      {"layer_norm", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(layer_norm_simd<bf16>, Isa::kAvx2)},
      {"layer_norm", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(layer_norm_simd<bf16>, Isa::kAvx512)},
      {"layer_norm", DType::kBf16, "avx512bf16", Isa::kAvx512Bf16, on_this_cpu(layer_norm_simd<bf16>, Isa::kAvx512Bf16)},
      {"gelu", DType::kF32, "plain", Isa::kPortable, &gelu_plain<float>()},
      {"gelu", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(gelu_simd<float>, Isa::kAvx2)},
      {"gelu", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(gelu_simd<float>, Isa::kAvx512)},
      {"gelu", DType::kF64, "plain", Isa::kPortable, &gelu_plain<double>()},
      {"gelu", DType::kBf16, "plain", Isa::kPortable, &gelu_plain<bf16>()},
      {"gelu", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(gelu_simd<bf16>, Isa::kAvx2)},
      {"gelu", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(gelu_simd<bf16>, Isa::kAvx512)},
      {"gelu", DType::kBf16, "avx512bf16", Isa::kAvx512Bf16, on_this_cpu(gelu_simd<bf16>, Isa::kAvx512Bf16)},
      {"embedding", DType::kF32, "plain", Isa::kPortable, &embedding_plain<float>()},
      {"embedding", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(embedding_simd<float>, Isa::kAvx2)},
      {"embedding", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(embedding_simd<float>, Isa::kAvx512)},
      {"embedding", DType::kF64, "plain", Isa::kPortable, &embedding_plain<double>()},
      {"embedding", DType::kBf16, "plain", Isa::kPortable, &embedding_plain<bf16>()},
      {"embedding", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(embedding_simd<bf16>, Isa::kAvx2)},
      {"embedding", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(embedding_simd<bf16>, Isa::kAvx512)},
      {"cross_entropy", DType::kF32, "plain", Isa::kPortable, &cross_entropy_plain<float>()},
      {"cross_entropy", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(cross_entropy_simd<float>, Isa::kAvx2)},
      {"cross_entropy", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(cross_entropy_simd<float>, Isa::kAvx512)},
      {"cross_entropy", DType::kF64, "plain", Isa::kPortable, &cross_entropy_plain<double>()},
      {"cross_entropy", DType::kBf16, "plain", Isa::kPortable, &cross_entropy_plain<bf16>()},
      {"cross_entropy", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(cross_entropy_simd<bf16>, Isa::kAvx2)},
      {"cross_entropy", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(cross_entropy_simd<bf16>, Isa::kAvx512)},
      {"cross_entropy", DType::kBf16, "avx512bf16", Isa::kAvx512Bf16, on_this_cpu(cross_entropy_simd<bf16>, Isa::kAvx512Bf16)},
      {"adamw", DType::kF32, "plain", Isa::kPortable, &adamw_plain<float>()},
      {"adamw", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(adamw_simd<float>, Isa::kAvx2)},
      {"adamw", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(adamw_simd<float>, Isa::kAvx512)},
      {"adamw", DType::kF64, "plain", Isa::kPortable, &adamw_plain<double>()},
      {"rms_norm", DType::kF32, "plain", Isa::kPortable, &rms_norm_plain<float>()},
      {"rms_norm", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(rms_norm_simd<float>, Isa::kAvx2)},
      {"rms_norm", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(rms_norm_simd<float>, Isa::kAvx512)},
      {"rms_norm", DType::kF64, "plain", Isa::kPortable, &rms_norm_plain<double>()},
      {"rms_norm", DType::kBf16, "plain", Isa::kPortable, &rms_norm_plain<bf16>()},
      {"rms_norm", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(rms_norm_simd<bf16>, Isa::kAvx2)},
      {"rms_norm", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(rms_norm_simd<bf16>, Isa::kAvx512)},
      {"rms_norm", DType::kBf16, "avx512bf16", Isa::kAvx512Bf16, on_this_cpu(rms_norm_simd<bf16>, Isa::kAvx512Bf16)},
      {"swiglu", DType::kF32, "plain", Isa::kPortable, &swiglu_plain<float>()},
      {"swiglu", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(swiglu_simd<float>, Isa::kAvx2)},
      {"swiglu", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(swiglu_simd<float>, Isa::kAvx512)},
      {"swiglu", DType::kF64, "plain", Isa::kPortable, &swiglu_plain<double>()},
      {"swiglu", DType::kBf16, "plain", Isa::kPortable, &swiglu_plain<bf16>()},
      {"swiglu", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(swiglu_simd<bf16>, Isa::kAvx2)},
      {"swiglu", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(swiglu_simd<bf16>, Isa::kAvx512)},
      {"swiglu", DType::kBf16, "avx512bf16", Isa::kAvx512Bf16, on_this_cpu(swiglu_simd<bf16>, Isa::kAvx512Bf16)},
      {"rope", DType::kF32, "plain", Isa::kPortable, &rope_plain<float>()},
      {"rope", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(rope_simd<float>, Isa::kAvx2)},
      {"rope", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(rope_simd<float>, Isa::kAvx512)},
      {"rope", DType::kF64, "plain", Isa::kPortable, &rope_plain<double>()},
      {"rope", DType::kBf16, "plain", Isa::kPortable, &rope_plain<bf16>()},
      {"rope", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(rope_simd<bf16>, Isa::kAvx2)},
      {"rope", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(rope_simd<bf16>, Isa::kAvx512)},
      {"rope", DType::kBf16, "avx512bf16", Isa::kAvx512Bf16, on_this_cpu(rope_simd<bf16>, Isa::kAvx512Bf16)},
      {"dropout", DType::kF32, "plain", Isa::kPortable, &dropout_plain<float>()},
      {"dropout", DType::kF32, "avx2", Isa::kAvx2, on_this_cpu(dropout_simd<float>, Isa::kAvx2)},
      {"dropout", DType::kF32, "avx512", Isa::kAvx512, on_this_cpu(dropout_simd<float>, Isa::kAvx512)},
      {"dropout", DType::kF64, "plain", Isa::kPortable, &dropout_plain<double>()},
      {"dropout", DType::kBf16, "plain", Isa::kPortable, &dropout_plain<bf16>()},
      {"dropout", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(dropout_simd<bf16>, Isa::kAvx2)},
      {"dropout", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(dropout_simd<bf16>, Isa::kAvx512)},
      {"mixed_adamw", DType::kBf16, "plain", Isa::kPortable, &mixed_adamw_plain()},
      {"mixed_adamw", DType::kBf16, "avx2", Isa::kAvx2, on_this_cpu(mixed_adamw_simd, Isa::kAvx2)},
      {"mixed_adamw", DType::kBf16, "avx512", Isa::kAvx512, on_this_cpu(mixed_adamw_simd, Isa::kAvx512)},
      {"convert", {}, "plain", Isa::kPortable, &convert_plain()},
      {"convert", {}, "avx2", Isa::kAvx2, on_this_cpu(convert_simd, Isa::kAvx2)},
      {"convert", {}, "avx512", Isa::kAvx512, on_this_cpu(convert_simd, Isa::kAvx512)},
  };
  // clang-format on
  return rows;
}

bool is_available(const KernelRow& row) {
  return row.functions != nullptr && supports(cpu(), row.isa);
}

}  // namespace sinew::kernels
