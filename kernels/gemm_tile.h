// The seam between the blocking of a GEMM (gemm_blocked.cc, plain C++) and its inner kernels (one
// file per instruction set): a table of functions on packed panels.
//
// Packed forms, free of strides so that the inner kernel reads memory in order:
//   A panel: [depth, rows]          rows <= tile_rows rows of op(A), one k after the other
//   B panel: [depth, tile_columns]  columns of op(B), zeros right of the last column
// Every function is pure: it allocates nothing and touches only what its arguments name.
#pragma once

#include <cstdint>

namespace sinew::kernels {

// Lines that will be needed soon: at step k of a tile the line at
// address + (k mod 16) * inner_step_bytes + (k / 16) * outer_step_bytes is fetched into the second
// level cache. Never faults, whatever the address; address 0 stands for no line.
struct Prefetch {
  std::uintptr_t address = 0;
  std::int64_t inner_step_bytes = 0;
  std::int64_t outer_step_bytes = 0;
};

// c[i, j] = alpha * sum over k of a[k * a_step + i] b[k * b_step + j] + beta * c[i, j] for i <
// rows, j < columns. The sum is one chain per element, k in increasing order, so an element's bits
// do not depend on the tile it falls into. beta == 0 never reads C.
struct GemmTile {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  float alpha = 1;
  float beta = 0;
  const float* a = nullptr;
  std::int64_t a_step = 0;  // from one k to the next: rows, in a packed panel
  const float* b = nullptr;
  std::int64_t b_step = 0;  // from one k to the next: tile_columns, in a packed panel
  float* c = nullptr;
  std::int64_t c_stride = 0;
  // When set, b is a part of an unpacked op(B), columns is tile_columns, and the packed panel is
  // written here on the way, so that the copy costs no time of its own.
  float* b_packed = nullptr;
  Prefetch prefetch{};
};

// Element (row, column) of a stored matrix is data[row * stride + column].
struct GemmSource {
  const float* data = nullptr;
  std::int64_t stride = 0;
};

struct GemmKernels {
  std::int64_t tile_rows = 0;
  std::int64_t tile_columns = 0;
  void (*multiply)(const GemmTile& tile) = nullptr;
  // One A panel from op(A) stored [rows, depth] (plain) or [depth, rows] (transposed).
  void (*pack_a)(GemmSource a, std::int64_t rows, std::int64_t depth, float* panel) = nullptr;
  void (*pack_a_transposed)(GemmSource a, std::int64_t rows, std::int64_t depth,
                            float* panel) = nullptr;
  // One B panel from op(B) stored [depth, columns] (plain) or [columns, depth] (transposed).
  void (*pack_b)(GemmSource b, std::int64_t columns, std::int64_t depth, float* panel) = nullptr;
  void (*pack_b_transposed)(GemmSource b, std::int64_t columns, std::int64_t depth,
                            float* panel) = nullptr;
};

// Null when the compiler's target architecture lacks the instruction set.
[[nodiscard]] const GemmKernels* gemm_kernels_portable();
[[nodiscard]] const GemmKernels* gemm_kernels_avx2();
[[nodiscard]] const GemmKernels* gemm_kernels_avx512();

}  // namespace sinew::kernels
