// The epilogue of GEMM (see Epilogue in gemm.h) over a vector type V: one pass over rows that are
// still in the first level cache.
#pragma once

#include <cstdint>

#include "kernels/exp2_inl.h"
#include "kernels/gemm_tile.h"

namespace sinew::kernels {
namespace {

// 1 / (1 + exp(-x)) given x * log2(e). The bound keeps 2^-x finite; there the result is 2^-126.
template <class V>
typename V::Vector sigmoid_of_log2(typename V::Vector x) {
  const auto power = V::min(constant<V>(126.0F), V::subtract(V::zero(), x));
  return V::divide(constant<V>(1.0F), V::add(constant<V>(1.0F), exp2<V>(power)));
}

constexpr float kLog2EF = 1.44269504F;
// gelu(x) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3): the same as x/2 (1 + tanh(u)).
constexpr float kGeluOuter = 0.797884561F;  // sqrt(2/pi)
constexpr float kGeluInner = 0.044715F;

template <class V>
typename V::Vector gelu_sigmoid(typename V::Vector x) {
  const auto square = V::multiply(x, x);
  const auto factor = V::multiply_add(square, constant<V>(kGeluInner), constant<V>(1.0F));
  return sigmoid_of_log2<V>(
      V::multiply(V::multiply(x, factor), constant<V>(2 * kGeluOuter * kLog2EF)));
}

// sigmoid + x sigmoid (1 - sigmoid) slope, the derivative of x sigmoid(v(x)) with v' = slope.
template <class V>
typename V::Vector gated_slope(typename V::Vector x, typename V::Vector sigmoid,
                               typename V::Vector slope) {
  const auto rest = V::subtract(constant<V>(1.0F), sigmoid);
  return V::multiply_add(V::multiply(V::multiply(x, sigmoid), rest), slope, sigmoid);
}

template <class V>
typename V::Vector clamp(typename V::Vector x, float limit) {
  return V::min(constant<V>(limit), V::max(constant<V>(-limit), x));
}

// z as it is multiplied with its sigmoid, which at -88 is 2^-126 or less and no smaller below: the
// product is 0 to within 1e-36 there. NaN stays.
template <class V>
typename V::Vector not_below(typename V::Vector z) {
  return V::max(constant<V>(-88.0F), z);
}

template <class V, Activation kActivation>
typename V::Vector activate(typename V::Vector z, typename V::Vector input) {
  if constexpr (kActivation == Activation::kGelu) {
    return V::multiply(not_below<V>(z), gelu_sigmoid<V>(z));
  } else if constexpr (kActivation == Activation::kSilu) {
    const auto sigmoid = sigmoid_of_log2<V>(V::multiply(z, constant<V>(kLog2EF)));
    return V::multiply(not_below<V>(z), sigmoid);
  } else if constexpr (kActivation == Activation::kGeluGradient) {
    // Beyond 10 the slope is 0 or 1 to within 1e-35; the clamp keeps infinity times 0 away.
    input = clamp<V>(input, 10.0F);
    const auto square = V::multiply(input, input);
    const auto slope = V::multiply_add(square, constant<V>(6 * kGeluOuter * kGeluInner),
                                       constant<V>(2 * kGeluOuter));
    return V::multiply(z, gated_slope<V>(input, gelu_sigmoid<V>(input), slope));
  } else if constexpr (kActivation == Activation::kSiluGradient) {
    // Beyond 80 likewise.
    input = clamp<V>(input, 80.0F);
    const auto sigmoid = sigmoid_of_log2<V>(V::multiply(input, constant<V>(kLog2EF)));
    return V::multiply(z, gated_slope<V>(input, sigmoid, constant<V>(1.0F)));
  } else {
    return z;
  }
}

// Reads and writes of `count` lanes, whole vectors where possible.
template <class V, typename T>
typename V::Vector load_lanes(const T* x, int count) {
  return count == V::kLanes ? V::load(x) : V::load_partial(x, count);
}
template <class V, typename T>
void store_lanes(T* x, typename V::Vector v, int count) {
  if (count == V::kLanes)
    V::store(x, v);
  else
    V::store_partial(x, v, count);
}

template <class V, typename Out, Activation kActivation>
void finish_lanes(const GemmFinish<Out>& block, std::int64_t row, std::int64_t column, int count) {
  const Epilogue<Out>& e = block.epilogue;
  const auto at = [&](auto matrix) { return matrix.data + row * matrix.stride + column; };
  Out* c = block.c + row * block.c_stride + column;
  auto z = load_lanes<V>(block.sums + row * block.sums_stride + column, count);
  if (block.beta != 0) z = V::multiply_add(constant<V>(block.beta), load_lanes<V>(c, count), z);
  if (e.bias != nullptr) z = V::add(z, load_lanes<V>(e.bias + column, count));
  if (e.pre.data != nullptr) store_lanes<V>(at(e.pre), z, count);
  constexpr bool kIsGradient =
      kActivation == Activation::kGeluGradient || kActivation == Activation::kSiluGradient;
  const auto input = kIsGradient ? load_lanes<V>(at(e.input), count) : V::zero();
  auto y = activate<V, kActivation>(z, input);
  if constexpr (kActivation == Activation::kSiluGradient) {
    if (e.gated.data != nullptr) {
      const auto silu = activate<V, Activation::kSilu>(input, input);
      store_lanes<V>(at(e.gated), V::multiply(z, silu), count);
    }
  }
  if (e.factor.data != nullptr) y = V::multiply(y, load_lanes<V>(at(e.factor), count));
  if (e.residual.data != nullptr) y = V::add(y, load_lanes<V>(at(e.residual), count));
  store_lanes<V>(c, y, count);
}

template <class V, typename Out, Activation kActivation>
void finish_rows(const GemmFinish<Out>& block) {
  for (std::int64_t row = 0; row < block.rows; ++row) {
    for (std::int64_t column = 0; column < block.columns; column += V::kLanes) {
      const std::int64_t left = block.columns - column;
      finish_lanes<V, Out, kActivation>(block, row, column,
                                        static_cast<int>(left < V::kLanes ? left : V::kLanes));
    }
  }
}

template <class V, typename Out>
void finish(const GemmFinish<Out>& block) {
  switch (block.epilogue.activation) {
    case Activation::kNone:
      return finish_rows<V, Out, Activation::kNone>(block);
    case Activation::kGelu:
      return finish_rows<V, Out, Activation::kGelu>(block);
    case Activation::kSilu:
      return finish_rows<V, Out, Activation::kSilu>(block);
    case Activation::kGeluGradient:
      return finish_rows<V, Out, Activation::kGeluGradient>(block);
    case Activation::kSiluGradient:
      return finish_rows<V, Out, Activation::kSiluGradient>(block);
  }
}

}  // namespace
}  // namespace sinew::kernels
