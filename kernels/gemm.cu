// The table of GEMM versions on devices.
#include <array>
#include <string>

#include "kernels/gemm_gpu.h"
#include "sched/base/check.h"

namespace sinew::kernels {

std::span<const GemmVersion> gemm_versions() {
  static const std::array versions = {
    gemm_mma_small(),
    gemm_mma_large(),
    gemm_wgmma(),
    gemm_wgmma_wide(),
#if SINEW_HAVE_CUBLASLT
    gemm_cublaslt()
#endif
  };
  return versions;
}

const GemmVersion& gemm_version_for(const DeviceGemm& call) {
  const GemmVersion* best = nullptr;
  for (const GemmVersion& version : gemm_versions()) {
    if (version.wants(call.shape) && version.supports(call, device::properties())) best = &version;
  }
  CHECK(best != nullptr);
  return *best;
}

void gemm(const DeviceGemm& call, device::Stream& stream) {
  CHECK(call.c_dtype == DType::kBf16 || call.c_dtype == DType::kF32);
  gemm_version_for(call).run(call, stream);
}

void gemm_by(std::string_view name, const DeviceGemm& call, device::Stream& stream) {
  std::string legal;
  for (const GemmVersion& version : gemm_versions()) {
    legal += (legal.empty() ? "" : ", ") + std::string(version.name);
    if (version.name != name) continue;
    if (!version.supports(call, device::properties())) {
      throw UsageError("gemm version " + std::string(name) +
                       " does not take this product; it needs " + std::string(version.needs));
    }
    return version.run(call, stream);
  }
  throw UsageError("gemm version '" + std::string(name) + "' is unknown; legal values: " + legal);
}

std::int64_t gemm_workspace(const GemmShape& shape) { return gemm_mma_workspace(shape); }

}  // namespace sinew::kernels
