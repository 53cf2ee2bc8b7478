// One small run of each kernel whose threads order one another: true when the results are right.
// Defined beside the kernel's own tests; run again with every REQUIRED statement left out by
// mutants_test.cc.
#pragma once

#include <string_view>

#include "kernels/device/runtime.h"

namespace sinew::testing {

[[nodiscard]] bool layer_norm_scenario(device::Stream& stream);

struct Scenario {
  std::string_view file;  // whose REQUIRED statements it reaches
  bool (*run)(device::Stream& stream);
};

inline constexpr Scenario kScenarios[] = {
    {"kernels/device/gpu/collect.h", layer_norm_scenario},
};

}  // namespace sinew::testing
