// Reductions over a warp and a block, in a fixed order: the same bits on every run and under every
// schedule.
#pragma once

#include <cmath>

#include "kernels/device/gpu/thread.h"

namespace sinew::gpu {

struct Sum {
  GPU_FUNCTION float operator()(float a, float b) const { return a + b; }
  static constexpr float kNeutral = 0.0F;
};
struct Maximum {
  GPU_FUNCTION float operator()(float a, float b) const { return fmaxf(a, b); }
  static constexpr float kNeutral = -INFINITY;
};

// Butterfly: every lane has the result. All 32 lanes must call.
template <typename Combine>
GPU_FUNCTION float warp_all(float value, Combine combine) {
  UNROLL for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(kFullMask, value, offset));
  }
  return value;
}

// Every thread of the block has the result. All threads must call; their number is a multiple
// of 32.
template <typename Combine>
GPU_FUNCTION float block_all(float value, Combine combine) {
  SHARED(float, partial, kWarp + 1);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_all(value, combine);
  if (lane() == 0) partial[warp()] = value;
  REQUIRED(block_all_partials_written, __syncthreads());
  if (warp() == 0) {
    value = warp_all(lane() < warps ? partial[lane()] : Combine::kNeutral, combine);
    if (lane() == 0) partial[kWarp] = value;
  }
  REQUIRED(block_all_result_written, __syncthreads());
  // The next call writes partial[kWarp] behind its first barrier, which nobody passes before all have read it here.
  return partial[kWarp];
}

}  // namespace sinew::gpu
