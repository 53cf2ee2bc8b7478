// Sums over rows, for the gradients of what is added to or multiplied with every row.
#pragma once

#include <cstdint>

#include "kernels/device/runtime.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// A matrix [rows, channels] whose rows begin `stride` elements apart.
template <typename T>
struct Matrix {
  const T* data;
  std::int64_t rows;
  std::int64_t channels;
  std::int64_t stride;
};

// target[c] += sum over r of x[r, c], in an order that depends on the shape only. T is float or
// bf16; sums are f32. workspace: column_sums_workspace(...) floats. Cost: x read once.
template <typename T>
void column_sums(const Matrix<T>& x, float* target, float* workspace, device::Stream& stream);
[[nodiscard]] std::int64_t column_sums_workspace(std::int64_t rows, std::int64_t channels);

}  // namespace sinew::kernels
