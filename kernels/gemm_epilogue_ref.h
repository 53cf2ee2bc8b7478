// The epilogue of GEMM on one element, as gemm.h states it: what the plain version uses, and the
// f64 one, whose epilogues need not be fast.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/element.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"

namespace sinew::kernels {

template <typename W>
W silu(W x) {
  return x / (1 + std::exp(-x));
}
template <typename W>
W silu_slope(W x) {
  const W sigmoid = 1 / (1 + std::exp(-x));
  return sigmoid * (1 + x * (1 - sigmoid));
}

template <typename W>
W activate(Activation activation, W z, W input) {
  W y = z;
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kGelu:
      gelu_plain<W>().forward(&z, &y, 1);
      break;
    case Activation::kSilu:
      y = silu(z);
      break;
    case Activation::kGeluGradient:
      gelu_plain<W>().backward(&z, &input, &y, 1);
      break;
    case Activation::kSiluGradient:
      y = z * silu_slope(input);
      break;
  }
  return y;
}

// Element (row, column) of C from its sum z.
template <typename T>
void finish_element(const Epilogue<T>& e, std::int64_t row, std::int64_t column, Wide<T> z, T* c) {
  using W = Wide<T>;
  const auto at = [&](const auto& matrix) { return matrix.data + row * matrix.stride + column; };
  if (e.bias != nullptr) z += widen(e.bias[column]);
  if (e.pre.data != nullptr) *at(e.pre) = narrow<T>(z);
  const W input = e.input.data != nullptr ? widen(*at(e.input)) : W{0};
  W y = activate(e.activation, z, input);
  if (e.gated.data != nullptr) *at(e.gated) = narrow<T>(z * silu(input));
  if (e.factor.data != nullptr) y *= widen(*at(e.factor));
  if (e.residual.data != nullptr) y += widen(*at(e.residual));
  *c = narrow<T>(y);
}

}  // namespace sinew::kernels
