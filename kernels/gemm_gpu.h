// GEMM on device memory: C = alpha op(A) op(B) + beta C as in gemm.h, with A and B bf16, sums in
// f32, C bf16 or f32, and what usually follows a GEMM done before C is stored.
//
// C is rounded once. The order of every sum depends on the shape only: same version, same bits on
// every run. Aliasing and shapes as in gemm.h; residual may be C.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/device/runtime.h"
#include "kernels/gemm.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

enum class Activation : std::uint8_t {
  kNone,
  kGelu,
  // Columns 2j and 2j + 1 are gate and up of output column j: C is [m, n/2], n even.
  kSwigluPairs,
};

// In this order, on r = alpha sum + beta C: r += bias; before = r; r = activation(r);
// r *= gelu'(slope_at); r += residual; C = r. Null pointers leave a part out.
struct GemmEpilogue {
  const bf16* bias = nullptr;  // [n]
  bf16* before = nullptr;      // [m, n], stride n: what the activation's backward needs
  Activation activation = Activation::kNone;
  const bf16* slope_at = nullptr;  // [m, n], stride n: the backward of GELU
  const bf16* residual = nullptr;  // C's shape and stride
};

struct GemmCall {
  GemmShape shape;
  float alpha = 1;
  const bf16* a = nullptr;
  const bf16* b = nullptr;
  float beta = 0;
  void* c = nullptr;
  DType c_dtype = DType::kBf16;  // or kF32
  GemmEpilogue epilogue = {};
  float* workspace = nullptr;  // gemm_workspace(shape) floats
};

// One way to do it.
struct GemmVersion {
  std::string_view name;
  std::string_view needs;  // for people: what supports asks for
  bool (*supports)(const GemmCall& call, const device::Properties& properties);
  bool (*wants)(const GemmShape& shape);  // whether it is worth while for the shape
  void (*run)(const GemmCall& call, device::Stream& stream);
};
[[nodiscard]] std::span<const GemmVersion> gemm_versions();

// Runs the last version of the table that supports the call and wants its shape.
void gemm(const GemmCall& call, device::Stream& stream);

// Floats, enough for every version.
[[nodiscard]] std::int64_t gemm_workspace(const GemmShape& shape);
[[nodiscard]] std::int64_t gemm_mma_workspace(const GemmShape& shape);

// Rows of the table, one file each.
[[nodiscard]] const GemmVersion& gemm_mma_small();
[[nodiscard]] const GemmVersion& gemm_mma_large();

}  // namespace sinew::kernels
