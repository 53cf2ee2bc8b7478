// The epilogue of a part of C: the same matrices, starting at another element.
#pragma once

#include <cstdint>

#include "kernels/gemm.h"

namespace sinew::kernels {

template <typename T>
Beside<T> moved(const Beside<T>& matrix, std::int64_t row, std::int64_t column) {
  if (matrix.data == nullptr) return {};
  return {matrix.data + row * matrix.stride + column, matrix.stride};
}

template <typename T>
Epilogue<T> moved(const Epilogue<T>& e, std::int64_t row, std::int64_t column) {
  return {.bias = e.bias == nullptr ? nullptr : e.bias + column,
          .activation = e.activation,
          .pre = moved(e.pre, row, column),
          .input = moved(e.input, row, column),
          .gated = moved(e.gated, row, column),
          .factor = moved(e.factor, row, column),
          .residual = moved(e.residual, row, column)};
}

}  // namespace sinew::kernels
