// Tensor-core operations of a warp on the twin: what each lane deposits and finds.
#pragma once

#include <cstdint>

#include "kernels/device/twin/core.h"

namespace sinew::twin {

// mma.sync.m16n8k16, bf16 in, f32 accumulated: d += a b.
struct MmaArgument {
  std::uint32_t a[4];
  std::uint32_t b[2];
  float d[4];
};
extern const WarpOp kMmaBf16;

// ldmatrix.x4: lane l brings row l % 8 of matrix l / 8, eight 16-bit elements.
struct LoadMatrixArgument {
  std::uint32_t row[4];
  std::uint32_t result[4];
};
extern const WarpOp kLoadMatrix;
extern const WarpOp kLoadMatrixTransposed;

}  // namespace sinew::twin
