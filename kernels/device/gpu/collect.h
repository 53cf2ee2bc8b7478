// Reductions over a warp and a block, in a fixed order: the same bits on every run and under every
// schedule.
#pragma once

#include <cmath>

#include "kernels/device/gpu/thread.h"

namespace sinew::gpu {

// Two sums that are wanted together cost the barriers of one.
struct Pair {
  float a;
  float b;
};

GPU_FUNCTION float shuffle_xor(float value, int offset) {
  return __shfl_xor_sync(kFullMask, value, offset);
}
GPU_FUNCTION double shuffle_xor(double value, int offset) {
  return __shfl_xor_sync(kFullMask, value, offset);
}
GPU_FUNCTION Pair shuffle_xor(Pair value, int offset) {
  return {shuffle_xor(value.a, offset), shuffle_xor(value.b, offset)};
}

struct Sum {
  GPU_FUNCTION float operator()(float a, float b) const { return a + b; }
  GPU_FUNCTION double operator()(double a, double b) const { return a + b; }
  GPU_FUNCTION Pair operator()(Pair x, Pair y) const { return {x.a + y.a, x.b + y.b}; }
};

// NaN wins, so that a broken value reaches the result instead of hiding.
struct Maximum {
  GPU_FUNCTION float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

// Butterfly: every lane has the result. All 32 lanes must call.
template <typename T, typename Combine>
GPU_FUNCTION T warp_all(T value, Combine combine) {
  UNROLL for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, shuffle_xor(value, offset));
  }
  return value;
}

// Every thread of the block has the result. All threads must call; their number is a multiple of
// 32. `neutral` does not change what it is combined with.
template <typename T, typename Combine>
GPU_FUNCTION T block_all(T value, Combine combine, T neutral = T{}) {
  SHARED(T, partial, kWarp + 1);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_all(value, combine);
  if (lane() == 0) partial[warp()] = value;
  REQUIRED(block_all_partials_written, __syncthreads());
  if (warp() == 0) {
    value = warp_all(lane() < warps ? partial[lane()] : neutral, combine);
    if (lane() == 0) partial[kWarp] = value;
  }
  REQUIRED(block_all_result_written, __syncthreads());
  // The next call writes partial[kWarp] behind its first barrier, which nobody passes before all
  // have read it here.
  return partial[kWarp];
}

}  // namespace sinew::gpu
