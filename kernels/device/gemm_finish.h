// What every GEMM version does with its sums: scale, epilogue, bounds, rounding.
#pragma once

#include "kernels/device/activation.h"
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
  GemmEpilogue epilogue;
};

[[nodiscard]] inline GemmOutput output_of(const GemmCall& call) {
  return {call.shape.m, call.shape.n, call.shape.c_stride,         call.alpha,
          call.beta,    call.c,       call.c_dtype == DType::kF32, call.epilogue};
}

GPU_FUNCTION float load_c(const GemmOutput& out, std::int64_t place) {
  return out.c_is_f32 ? static_cast<const float*>(out.c)[place]
                      : gpu::widen(static_cast<const bf16*>(out.c)[place]);
}

GPU_FUNCTION void store_c(const GemmOutput& out, std::int64_t place, float value) {
  if (out.c_is_f32) {
    static_cast<float*>(out.c)[place] = value;
  } else {
    static_cast<bf16*>(out.c)[place] = gpu::narrow<bf16>(value);
  }
}

// One element but for the activation of pairs, which finish_pair does.
GPU_FUNCTION float before_activation(const GemmOutput& out, std::int64_t row, std::int64_t column,
                                     float sum) {
  const GemmEpilogue& epilogue = out.epilogue;
  float r = out.alpha * sum;
  if (out.beta != 0) r += out.beta * load_c(out, row * out.c_stride + column);
  if (epilogue.bias != nullptr) r += gpu::widen(epilogue.bias[column]);
  if (epilogue.before != nullptr) epilogue.before[row * out.n + column] = gpu::narrow<bf16>(r);
  return r;
}

GPU_FUNCTION void after_activation(const GemmOutput& out, std::int64_t row, std::int64_t column,
                                   float r) {
  const GemmEpilogue& epilogue = out.epilogue;
  const std::int64_t place = row * out.c_stride + column;
  if (epilogue.slope_at != nullptr) {
    r *= gelu_slope(gpu::widen(epilogue.slope_at[row * out.n + column]));
  }
  if (epilogue.residual != nullptr) r += gpu::widen(epilogue.residual[place]);
  store_c(out, place, r);
}

// The sums of columns `column` (even) and column + 1 of one row; what lies outside C is dropped.
GPU_FUNCTION void finish_pair(const GemmOutput& out, std::int64_t row, std::int64_t column,
                              float sum0, float sum1) {
  if (row >= out.m || column >= out.n) return;
  const float first = before_activation(out, row, column, sum0);
  const bool both = column + 1 < out.n;
  const float second = both ? before_activation(out, row, column + 1, sum1) : 0.0F;
  switch (out.epilogue.activation) {
    case Activation::kSwigluPairs:
      return after_activation(out, row, column / 2, silu(first) * second);
    case Activation::kGelu:
      after_activation(out, row, column, gelu(first));
      if (both) after_activation(out, row, column + 1, gelu(second));
      return;
    case Activation::kNone:
      after_activation(out, row, column, first);
      if (both) after_activation(out, row, column + 1, second);
      return;
  }
}

}  // namespace sinew::kernels
