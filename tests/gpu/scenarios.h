// One small run of each kernel whose threads order one another: true when the results are right.
// Defined beside the kernel's own tests; run again with every REQUIRED statement left out by
// mutants_test.cc.
#pragma once

#include <string_view>

#include "kernels/device/runtime.h"

namespace sinew::testing {

[[nodiscard]] bool attention_scenario(device::Stream& stream);
[[nodiscard]] bool column_sums_scenario(device::Stream& stream);
[[nodiscard]] bool embedding_scenario(device::Stream& stream);
[[nodiscard]] bool gemm_mma_scenario(device::Stream& stream);
[[nodiscard]] bool gemm_wgmma_scenario(device::Stream& stream);
[[nodiscard]] bool different_calls_scenario(device::Stream& stream);
[[nodiscard]] bool door_scenario(device::Stream& stream);
[[nodiscard]] bool messages_scenario(device::Stream& stream);
[[nodiscard]] bool resident_scenario(device::Stream& stream);
[[nodiscard]] bool small_collectives_scenario(device::Stream& stream);
[[nodiscard]] bool layer_norm_scenario(device::Stream& stream);
[[nodiscard]] bool norm_backward_scenario(device::Stream& stream);

struct Scenario {
  std::string_view file;  // whose REQUIRED statements it reaches
  bool (*run)(device::Stream& stream);
};

inline constexpr Scenario kScenarios[] = {
    {"comm/device/door.cc", door_scenario},
    {"comm/device/messages.cu", messages_scenario},
    {"comm/device/resident.cu", resident_scenario},
    {"comm/device/small.cu", small_collectives_scenario},
    {"comm/device/wire.h", different_calls_scenario},
    {"kernels/attention_backward.cu", attention_scenario},
    {"kernels/attention_forward.cu", attention_scenario},
    {"kernels/column_sums.cu", column_sums_scenario},
    {"kernels/device/gpu/collect.h", layer_norm_scenario},
    {"kernels/embedding.cu", embedding_scenario},
    {"kernels/gemm_mma.cu", gemm_mma_scenario},
    {"kernels/gemm_wgmma.cu", gemm_wgmma_scenario},
    {"kernels/rms_norm.cu", norm_backward_scenario},
};

}  // namespace sinew::testing
