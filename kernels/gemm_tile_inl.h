// The inner kernels of GEMM, written once over a vector type V and compiled per instruction set.
// Included only by the files that define V in their own unnamed namespace, so that no function
// compiled for one instruction set can be linked into another.
//
// V is one of vector_*_inl.h: kLanes floats in a Vector, with
//   zero, broadcast, load, store, and load_partial (zeros past count), store_partial
//   add, subtract, multiply, multiply_add (x * y + z), max (y when either is NaN), sum (of lanes)
//   round (to nearest), scale_by_power (x * 2^n, n whole), select_from (x in lanes >= first, else
//   y) transpose (kLanes vectors in place)
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/gemm_tile.h"

namespace sinew::kernels {
namespace {

// Rows ahead at which an unpacked B is fetched: 32 steps of k are some 900 cycles of multiplying,
// more than a read of main memory takes.
constexpr std::int64_t kAhead = 32;

enum class Edge : std::uint8_t { kFull, kPartial };
enum class Beta : std::uint8_t { kZero, kAny };
enum class Right : std::uint8_t { kPacked, kPackedOnTheWay };

inline void prefetch_line(std::uintptr_t address) {
  __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
}

// The lanes of vector v that lie left of `columns`.
template <class V>
int lanes_left(std::int64_t columns, int v) {
  const std::int64_t left = columns - v * V::kLanes;
  return static_cast<int>(left < 0 ? 0 : left > V::kLanes ? V::kLanes : left);
}

template <class V, int kRows, int kVectors, Edge kEdge, Beta kBeta>
void store_sums(const GemmTile& tile, const typename V::Vector (&sum)[kRows][kVectors]) {
  const auto alpha = V::broadcast(&tile.alpha);
  const auto beta = V::broadcast(&tile.beta);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* c = tile.c + i * tile.c_stride + v * V::kLanes;
      const int count = kEdge == Edge::kFull ? V::kLanes : lanes_left<V>(tile.columns, v);
      auto value = V::multiply(alpha, sum[i][v]);
      if constexpr (kBeta == Beta::kAny) {
        const auto old = kEdge == Edge::kFull ? V::load(c) : V::load_partial(c, count);
        value = V::multiply_add(beta, old, value);
      }
      if constexpr (kEdge == Edge::kFull)
        V::store(c, value);
      else
        V::store_partial(c, value, count);
    }
  }
}

// sum[i][v] holds columns [v * kLanes, (v + 1) * kLanes) of row i. kRowStep: how far apart the rows
// of A lie at one k, 1 in a packed panel.
template <class V, int kRows, int kVectors, Right kRight, int kRowStep>
void multiply_rows(const GemmTile& tile) {
  using Vector = typename V::Vector;
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v)
      prefetch_line(reinterpret_cast<std::uintptr_t>(tile.c + i * tile.c_stride + v * V::kLanes));
  Vector sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = V::zero();

  const float* a = tile.a;
  const float* b = tile.b;
  const std::uintptr_t prefetch =
      tile.prefetch.address != 0 ? tile.prefetch.address : reinterpret_cast<std::uintptr_t>(a);
  float* b_packed = tile.b_packed;
  for (std::int64_t k = 0; k < tile.depth; ++k) {
    Vector right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      right[v] = V::load(b + v * V::kLanes);
      if constexpr (kRight == Right::kPackedOnTheWay) {
        V::store(b_packed + v * V::kLanes, right[v]);
        prefetch_line(reinterpret_cast<std::uintptr_t>(b + v * V::kLanes) +
                      static_cast<std::uintptr_t>(kAhead * 4 * tile.b_step));
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vector left = V::broadcast(a + i * kRowStep);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[i][v] = V::multiply_add(left, right[v], sum[i][v]);
    }
    prefetch_line(prefetch +
                  static_cast<std::uintptr_t>((k & 15) * tile.prefetch.inner_step_bytes +
                                              (k >> 4) * tile.prefetch.outer_step_bytes));
    a += tile.a_step;
    b += tile.b_step;
    if constexpr (kRight == Right::kPackedOnTheWay) b_packed += kVectors * V::kLanes;
  }

  if (tile.columns == kVectors * V::kLanes) {
    if (tile.beta == 0)
      store_sums<V, kRows, kVectors, Edge::kFull, Beta::kZero>(tile, sum);
    else
      store_sums<V, kRows, kVectors, Edge::kFull, Beta::kAny>(tile, sum);
  } else {
    if (tile.beta == 0)
      store_sums<V, kRows, kVectors, Edge::kPartial, Beta::kZero>(tile, sum);
    else
      store_sums<V, kRows, kVectors, Edge::kPartial, Beta::kAny>(tile, sum);
  }
}

template <class V, int kVectors, Right kRight, int kRowStep, int... kRowsLessOne>
void multiply_any(const GemmTile& tile, std::integer_sequence<int, kRowsLessOne...>) {
  static constexpr void (*kByRows[])(const GemmTile&) = {
      multiply_rows<V, kRowsLessOne + 1, kVectors, kRight, kRowStep>...};
  kByRows[tile.rows - 1](tile);
}

// panel[k, i] = source[i, k]: square blocks are transposed in registers.
template <class V>
void pack_transposing(GemmSource source, std::int64_t rows, std::int64_t depth,
                      std::int64_t panel_rows, float* panel) {
  for (std::int64_t k = 0; k < depth; k += V::kLanes) {
    const int width = lanes_left<V>(depth - k, 0);
    for (std::int64_t first = 0; first < panel_rows; first += V::kLanes) {
      typename V::Vector block[V::kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < V::kLanes; ++i) {
        const float* x = source.data + (first + i) * source.stride + k;
        block[i] = first + i >= rows    ? V::zero()
                   : width == V::kLanes ? V::load(x)
                                        : V::load_partial(x, width);
      }
      V::transpose(block);
      const int height = lanes_left<V>(panel_rows - first, 0);
      for (int i = 0; i < width; ++i) {
        float* y = panel + (k + i) * panel_rows + first;
        if (height == V::kLanes)
          V::store(y, block[i]);
        else
          V::store_partial(y, block[i], height);
      }
    }
  }
}

// panel[k, i] = source[k, i]
template <class V>
void pack_copying(GemmSource source, std::int64_t rows, std::int64_t depth, std::int64_t panel_rows,
                  float* panel) {
  for (std::int64_t first = 0; first < panel_rows; first += V::kLanes) {
    const int height = lanes_left<V>(panel_rows - first, 0);
    const int present = lanes_left<V>(rows - first, 0);
    for (std::int64_t k = 0; k < depth; ++k) {
      const float* x = source.data + k * source.stride + first;
      float* y = panel + k * panel_rows + first;
      if (present == V::kLanes)
        V::store(y, V::load(x));
      else
        V::store_partial(y, V::load_partial(x, present), height);
    }
  }
}

template <class V, int kRows, int kVectors>
constexpr GemmKernels make_gemm_kernels() {
  constexpr std::int64_t kColumns = kVectors * V::kLanes;
  return {
      .tile_rows = kRows,
      .tile_columns = kColumns,
      .multiply =
          [](const GemmTile& tile) {
            constexpr auto kAllRows = std::make_integer_sequence<int, kRows>{};
            if (tile.b_packed == nullptr)
              multiply_any<V, kVectors, Right::kPacked, 1>(tile, kAllRows);
            else
              multiply_any<V, kVectors, Right::kPackedOnTheWay, 1>(tile, kAllRows);
          },
      .pack_a = [](GemmSource a, std::int64_t rows, std::int64_t depth,
                   float* panel) { pack_transposing<V>(a, rows, depth, rows, panel); },
      .pack_a_transposed = [](GemmSource a, std::int64_t rows, std::int64_t depth,
                              float* panel) { pack_copying<V>(a, rows, depth, rows, panel); },
      .pack_b = [](GemmSource b, std::int64_t columns, std::int64_t depth,
                   float* panel) { pack_copying<V>(b, columns, depth, kColumns, panel); },
      .pack_b_transposed =
          [](GemmSource b, std::int64_t columns, std::int64_t depth, float* panel) {
            pack_transposing<V>(b, columns, depth, kColumns, panel);
          },
  };
}

}  // namespace
}  // namespace sinew::kernels
