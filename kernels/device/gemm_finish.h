// What every GEMM version does with its sums: scale, epilogue, bounds, rounding.
#pragma once

#include "kernels/device/activation.h"
#include "kernels/device/shapes.h"
#include "kernels/gemm_gpu.h"

namespace sinew::kernels {

struct GemmOutput {
  std::int64_t m;
  std::int64_t n;
  std::int64_t c_stride;
  float alpha;
  float beta;
  void* c;
  bool c_is_f32;
  bool in_pairs;  // an even column of C and the next can be stored at once
  Epilogue<bf16> epilogue;
};

[[nodiscard]] inline GemmOutput output_of(const DeviceGemm& call) {
  const bool is_f32 = call.c_dtype == DType::kF32;
  const bool even = call.shape.c_stride % 2 == 0 &&
                    reinterpret_cast<std::uintptr_t>(call.c) % (is_f32 ? 8 : 4) == 0;
  return {call.shape.m, call.shape.n, call.shape.c_stride, call.alpha, call.beta, call.c,
          is_f32,       even,         call.epilogue};
}

template <typename T>
GPU_FUNCTION float beside(const Beside<T>& matrix, std::int64_t row, std::int64_t column) {
  return gpu::widen(matrix.data[row * matrix.stride + column]);
}

GPU_FUNCTION void put_beside(const Beside<bf16>& matrix, std::int64_t row, std::int64_t column,
                             float value) {
  if (matrix.data != nullptr) matrix.data[row * matrix.stride + column] = gpu::narrow<bf16>(value);
}

GPU_FUNCTION float activate(const Epilogue<bf16>& epilogue, std::int64_t row, std::int64_t column,
                            float z) {
  switch (epilogue.activation) {
    case Activation::kNone:
      return z;
    case Activation::kGelu:
      return gelu(z);
    case Activation::kSilu:
      return silu(z);
    case Activation::kGeluGradient:
      return z * gelu_slope(beside(epilogue.input, row, column));
    case Activation::kSiluGradient: {
      const float input = beside(epilogue.input, row, column);
      put_beside(epilogue.gated, row, column, z * silu(input));
      return z * silu_slope(input);
    }
  }
  return z;
}

// The element of C that follows from its sum; its place is inside C.
GPU_FUNCTION float finished(const GemmOutput& out, std::int64_t row, std::int64_t column,
                            float sum) {
  const Epilogue<bf16>& epilogue = out.epilogue;
  float z = out.alpha * sum;
  if (out.beta != 0) {
    const std::int64_t place = row * out.c_stride + column;
    z += out.beta * (out.c_is_f32 ? static_cast<const float*>(out.c)[place]
                                  : gpu::widen(static_cast<const bf16*>(out.c)[place]));
  }
  if (epilogue.bias != nullptr) z += gpu::widen(epilogue.bias[column]);
  put_beside(epilogue.pre, row, column, z);
  float y = activate(epilogue, row, column, z);
  if (epilogue.factor.data != nullptr) y *= beside(epilogue.factor, row, column);
  if (epilogue.residual.data != nullptr) y += beside(epilogue.residual, row, column);
  return y;
}

template <typename T>
GPU_FUNCTION void store_pair(const GemmOutput& out, std::int64_t place, float first, float second,
                             bool both) {
  T* c = static_cast<T*>(out.c) + place;
  if (both && out.in_pairs) {
    gpu::store_values(c, gpu::Values<2>{{first, second}});
    return;
  }
  c[0] = gpu::narrow<T>(first);
  if (both) c[1] = gpu::narrow<T>(second);
}

// The sums of columns `column` (even) and column + 1 of one row; what lies outside C is dropped.
GPU_FUNCTION void finish_pair(const GemmOutput& out, std::int64_t row, std::int64_t column,
                              float sum0, float sum1) {
  if (row >= out.m || column >= out.n) return;
  const bool both = column + 1 < out.n;
  const float first = finished(out, row, column, sum0);
  const float second = both ? finished(out, row, column + 1, sum1) : 0.0F;
  const std::int64_t place = row * out.c_stride + column;
  if (out.c_is_f32) {
    store_pair<float>(out, place, first, second, both);
  } else {
    store_pair<bf16>(out, place, first, second, both);
  }
}

}  // namespace sinew::kernels
