// The table of GEMM versions on devices.
#include <array>

#include "kernels/gemm_gpu.h"
#include "sched/base/check.h"

namespace sinew::kernels {

std::span<const GemmVersion> gemm_versions() {
  static const std::array versions = {gemm_mma_small(), gemm_mma_large()};
  return versions;
}

void gemm(const DeviceGemm& call, device::Stream& stream) {
  CHECK(call.c_dtype == DType::kBf16 || call.c_dtype == DType::kF32);
  const GemmVersion* best = nullptr;
  for (const GemmVersion& version : gemm_versions()) {
    if (version.wants(call.shape) && version.supports(call, device::properties())) best = &version;
  }
  CHECK(best != nullptr);
  best->run(call, stream);
}

std::int64_t gemm_workspace(const GemmShape& shape) { return gemm_mma_workspace(shape); }

}  // namespace sinew::kernels
