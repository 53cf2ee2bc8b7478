// The twin's lines of 128 bytes and its clock; see gpu/line.h.
#pragma once

#include <cstdint>

#include "kernels/device/twin/core.h"

namespace sinew::twin {

// 16 bytes of one lane; place is null where the lane takes no part.
struct LineArgument {
  std::uint64_t* place;
  std::uint64_t value[2];
};
extern const WarpOp kStoreLines;
extern const WarpOp kLoadLines;

[[nodiscard]] std::uint64_t nanoseconds();

}  // namespace sinew::twin
