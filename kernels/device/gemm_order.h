// Which tile of C a block of a GEMM has.
#pragma once

#include <cstdint>

#include "kernels/device/gpu.h"

namespace sinew::kernels {

struct TileIndex {
  std::int64_t m;
  std::int64_t n;
};

// Blocks that run at the same time work on a square of C rather than a row of it, so that they
// share both operands' tiles in L2: down eight tiles, then one to the right.
GPU_FUNCTION TileIndex tile_of(std::int64_t block, std::int64_t tiles_m, std::int64_t tiles_n) {
  constexpr std::int64_t kGroup = 8;
  const std::int64_t group = block / (kGroup * tiles_n);
  const std::int64_t height = tiles_m - group * kGroup < kGroup ? tiles_m - group * kGroup : kGroup;
  const std::int64_t inside = block - group * kGroup * tiles_n;
  return {group * kGroup + inside % height, inside / height};
}

}  // namespace sinew::kernels
