// The activation functions inside kernels, shared by the element-wise kernels and the GEMM's
// epilogues.
#pragma once

#include <cmath>

#include "kernels/device/gpu.h"

namespace sinew::kernels {

constexpr float kGeluRoot = 0.79788456080286535588F;  // sqrt(2/pi)
constexpr float kGeluCubic = 0.044715F;

GPU_FUNCTION float gelu(float x) {
  const float t = tanhf(kGeluRoot * (x + kGeluCubic * x * x * x));
  return x / 2 * (1 + t);
}

GPU_FUNCTION float gelu_slope(float x) {
  const float t = tanhf(kGeluRoot * (x + kGeluCubic * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * (kGeluRoot * (1 + 3 * kGeluCubic * x * x));
}

GPU_FUNCTION float sigmoid(float x) { return 1 / (1 + expf(-x)); }
GPU_FUNCTION float silu(float x) { return x * sigmoid(x); }
GPU_FUNCTION float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

}  // namespace sinew::kernels
