// SwiGLU (Shazeer 2020): y = silu(gate) * up, silu(x) = x / (1 + exp(-x)).
//
// gate, up, d_gate, d_up: [rows, channels] views of one row stride in elements (so that both may be
// halves of one matrix [rows, 2 channels] that one GEMM writes); y, d_y: [rows, channels]
// row-major. T is float, double or bf16, arithmetic is Wide<T>. Error, float, u = 2^-24: |y -
// exact| <= 5 u |gate up|; d_up the same with d_y for up; d_gate 10 u |d_y up|. bf16: 5e-5 in place
// of 5 u and 10 u, plus one rounding to bf16.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/threads.h"

namespace sinew::kernels {

struct GatedShape {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  std::int64_t gate_stride = 0;  // of gate, up, d_gate and d_up; at least channels
};

template <typename T>
void swiglu_forward(const GatedShape& shape, const T* gate, const T* up, T* y,
                    Threads threads = {});
// d_up = d_y silu(gate); d_gate = d_y up silu'(gate). d_gate may be gate and d_up may be up.
template <typename T>
void swiglu_backward(const GatedShape& shape, const T* d_y, const T* gate, const T* up, T* d_gate,
                     T* d_up, Threads threads = {});

// What one version provides; see registry.h.
template <typename T>
struct SwigluFunctions {
  static constexpr std::string_view kOperation = "swiglu";
  using Element = T;
  void (*forward)(const GatedShape& shape, const T* gate, const T* up, T* y);
  void (*backward)(const GatedShape& shape, const T* d_y, const T* gate, const T* up, T* d_gate,
                   T* d_up);
};
template <typename T>
[[nodiscard]] const SwigluFunctions<T>& swiglu_plain();
// Null where this build has no code for `isa`; float and bf16.
template <typename T>
[[nodiscard]] const SwigluFunctions<T>* swiglu_simd(Isa isa);

}  // namespace sinew::kernels
