// The epilogue of GEMM on one element, as gemm.h states it: what the plain version uses, and the
// f64 one, whose epilogues need not be fast.
#pragma once

#include <cstdint>

#include "kernels/element.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "kernels/swiglu.h"

namespace sinew::kernels {

// z f'(gate) for SwiGLU's f, and z f(gate).
template <typename W>
struct SiluGradients {
  SiluGradients(W z, W gate) {
    const W one = 1;
    swiglu_plain<W>().backward({1, 1, 1}, &z, &gate, &one, &slope, &value);
  }
  W slope = 0;
  W value = 0;
};

template <typename W>
W activate(Activation activation, W z, W input) {
  const W one = 1;
  W y = z;
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kGelu:
      gelu_plain<W>().forward(&z, &y, 1);
      break;
    case Activation::kSilu:
      swiglu_plain<W>().forward({1, 1, 1}, &z, &one, &y);
      break;
    case Activation::kGeluGradient:
      gelu_plain<W>().backward(&z, &input, &y, 1);
      break;
    case Activation::kSiluGradient:
      y = SiluGradients<W>(z, input).slope;
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
  if (e.gated.data != nullptr) *at(e.gated) = narrow<T>(SiluGradients<W>(z, input).value);
  if (e.factor.data != nullptr) y *= widen(*at(e.factor));
  if (e.residual.data != nullptr) y += widen(*at(e.residual));
  *c = narrow<T>(y);
}

}  // namespace sinew::kernels
