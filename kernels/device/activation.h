// The activation functions inside kernels, shared by the element-wise kernels and the GEMM's
// epilogues.
#pragma once

#include <cmath>

#include "kernels/device/gpu.h"

namespace sinew::kernels {

constexpr float kGeluRoot = 0.79788456080286535588F;  // sqrt(2/pi)
constexpr float kGeluCubic = 0.044715F;

// Far out the functions are at their limits, so that a clamped argument serves; as it is, infinity
// would meet 0 there. NaN passes.
GPU_FUNCTION float at_least(float x, float low) { return x < low ? low : x; }
GPU_FUNCTION float clamp(float x, float limit) { return x > limit ? limit : at_least(x, -limit); }
constexpr float kGeluEnd = 20.0F;  // from here on tanh is 1 and the slope 0 or 1
constexpr float kSiluEnd = 88.0F;  // exp(88) is finite

GPU_FUNCTION float gelu_tanh(float x) { return tanhf(kGeluRoot * (x + kGeluCubic * x * x * x)); }
GPU_FUNCTION float gelu(float x) {
  const float t = gelu_tanh(clamp(x, kGeluEnd));
  return at_least(x, -kGeluEnd) / 2 * (1 + t);
}
GPU_FUNCTION float gelu_slope(float x) {
  x = clamp(x, kGeluEnd);
  const float t = gelu_tanh(x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * (kGeluRoot * (1 + 3 * kGeluCubic * x * x));
}

GPU_FUNCTION float sigmoid(float x) { return 1 / (1 + expf(-x)); }
GPU_FUNCTION float silu(float x) { return at_least(x, -kSiluEnd) * sigmoid(x); }
GPU_FUNCTION float silu_slope(float x) {
  x = clamp(x, kSiluEnd);
  const float s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

}  // namespace sinew::kernels
