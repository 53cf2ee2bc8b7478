// GEMM on device memory: C = alpha op(A) op(B) + beta C as in gemm.h, with A and B bf16, sums in
// f32, C bf16 or f32, and what a layer does to C done before C is stored.
//
// C is rounded once. The order of every sum depends on the shape only: same version, same bits on
// every run. Aliasing and shapes as in gemm.h. Error: that of gemm.h with u = 2^-23, since tensor
// cores may cut sums off instead of rounding them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/device/runtime.h"
#include "kernels/gemm.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// One product. The epilogue is gemm.h's, with bf16 operands whatever the type of C.
struct DeviceGemm {
  GemmShape shape;
  float alpha = 1;
  const bf16* a = nullptr;
  const bf16* b = nullptr;
  float beta = 0;
  void* c = nullptr;
  DType c_dtype = DType::kBf16;  // or kF32
  Epilogue<bf16> epilogue{};
  float* workspace = nullptr;  // gemm_workspace(shape) floats
};

// One way to do it.
struct GemmVersion {
  std::string_view name;
  std::string_view needs;  // for people: what supports asks for
  bool (*supports)(const DeviceGemm& call, const device::Properties& properties);
  bool (*wants)(const GemmShape& shape);  // whether it is worth while for the shape
  void (*run)(const DeviceGemm& call, device::Stream& stream);
};
[[nodiscard]] std::span<const GemmVersion> gemm_versions();

// The last of the table that supports the call and wants its shape; gemm runs it.
[[nodiscard]] const GemmVersion& gemm_version_for(const DeviceGemm& call);
void gemm(const DeviceGemm& call, device::Stream& stream);
// Runs the version of that name. Throws UsageError naming the legal names, or what it needs.
void gemm_by(std::string_view version, const DeviceGemm& call, device::Stream& stream);

// Floats, enough for every version.
[[nodiscard]] std::int64_t gemm_workspace(const GemmShape& shape);
[[nodiscard]] std::int64_t gemm_mma_workspace(const GemmShape& shape);

// Rows of the table, one file each.
[[nodiscard]] const GemmVersion& gemm_mma_small();
[[nodiscard]] const GemmVersion& gemm_mma_large();
[[nodiscard]] const GemmVersion& gemm_wgmma();
[[nodiscard]] const GemmVersion& gemm_wgmma_wide();
[[nodiscard]] const GemmVersion& gemm_cublaslt();  // where SINEW_HAVE_CUBLASLT

}  // namespace sinew::kernels
