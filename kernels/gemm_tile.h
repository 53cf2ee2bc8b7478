// The seam between the blocking of a GEMM (gemm_blocked.cc, plain C++) and its inner kernels (one
// file per instruction set): a table of functions on packed panels.
//
// Panels are made of 32-bit words: one float, or two bf16 that follow each other along k (the
// second 0 past an odd end). depth counts words. Packed forms, free of strides so that the inner
// kernel reads memory in order:
//   A panel: [depth, rows]          rows <= tile_rows rows of op(A), one k after the other
//   B panel: [depth, tile_columns]  columns of op(B), zeros right of the last column
// Every function is pure: it allocates nothing and touches only what its arguments name.
#pragma once

#include <cstdint>

#include "kernels/gemm.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// Lines that will be needed soon: at step k of a tile the line at
// address + (k mod 16) * inner_step_bytes + (k / 16) * outer_step_bytes is fetched into the second
// level cache. Never faults, whatever the address; address 0 stands for no line.
struct Prefetch {
  std::uintptr_t address = 0;
  std::int64_t inner_step_bytes = 0;
  std::int64_t outer_step_bytes = 0;
};

// Element (row, column) of a stored matrix is data[row * stride + column].
template <typename Element>
struct GemmSource {
  const Element* data = nullptr;
  std::int64_t stride = 0;
};

// c[i, j] = alpha * sum over k of a[k * a_step + i] b[k, j] + beta * c[i, j] for i < rows,
// j < columns. The sum is one chain per element, k in increasing order, so an element's bits do not
// depend on the tile it falls into. beta == 0 never reads C.
template <typename Element>
struct GemmTile {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  float alpha = 1;
  float beta = 0;
  const float* a = nullptr;
  std::int64_t a_step = 0;  // from one k to the next: rows, in a packed panel
  const float* b = nullptr;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  // When unpacked.data is set, B is read from there, op(B) stored plain, and the packed panel is
  // written to b_packed on the way, so that the copy costs no time of its own. columns must then be
  // tile_columns and every word whole.
  GemmSource<Element> unpacked{};
  float* b_packed = nullptr;
  Prefetch prefetch{};
};

// Rows of C that are finished but for the epilogue: sums -> C. C's old value enters with beta (0
// when it is part of the sums already). Pointers of the epilogue are those of the block's first
// element.
template <typename Out>
struct GemmFinish {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const float* sums = nullptr;
  std::int64_t sums_stride = 0;
  float beta = 0;
  Out* c = nullptr;
  std::int64_t c_stride = 0;
  Epilogue<Out> epilogue{};
};

template <typename Element>
struct GemmKernels {
  using Source = GemmSource<Element>;
  std::int64_t tile_rows = 0;
  std::int64_t tile_columns = 0;
  std::int64_t word_elements = 1;  // elements of k in a word
  void (*multiply)(const GemmTile<Element>& tile) = nullptr;
  // One A panel from op(A) stored [rows, elements] (plain) or [elements, rows] (transposed).
  void (*pack_a)(Source a, std::int64_t rows, std::int64_t elements, float* panel) = nullptr;
  void (*pack_a_transposed)(Source a, std::int64_t rows, std::int64_t elements,
                            float* panel) = nullptr;
  // One B panel from op(B) stored [elements, columns] (plain) or [columns, elements] (transposed).
  void (*pack_b)(Source b, std::int64_t columns, std::int64_t elements, float* panel) = nullptr;
  void (*pack_b_transposed)(Source b, std::int64_t columns, std::int64_t elements,
                            float* panel) = nullptr;
  void (*finish)(const GemmFinish<Element>& block) = nullptr;
  void (*finish_wide)(const GemmFinish<float>& block) = nullptr;
};

// Null when the compiler's target architecture lacks the instruction set.
[[nodiscard]] const GemmKernels<float>* gemm_kernels_portable();
[[nodiscard]] const GemmKernels<float>* gemm_kernels_avx2();
[[nodiscard]] const GemmKernels<float>* gemm_kernels_avx512();
[[nodiscard]] const GemmKernels<bf16>* gemm_bf16_kernels_portable();
[[nodiscard]] const GemmKernels<bf16>* gemm_bf16_kernels_avx2();
[[nodiscard]] const GemmKernels<bf16>* gemm_bf16_kernels_avx512();
[[nodiscard]] const GemmKernels<bf16>* gemm_bf16_kernels_avx512bf16();

}  // namespace sinew::kernels
