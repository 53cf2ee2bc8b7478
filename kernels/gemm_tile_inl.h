// The inner kernels of GEMM, written once over a vector type V and compiled per instruction set.
// Included only by the files that define V in their own unnamed namespace, so that no function
// compiled for one instruction set can be linked into another.
//
// V is one of vector_*_inl.h: kLanes floats in a Vector, with
//   zero, broadcast, load, store, and load_partial (zeros past count), store_partial, also for bf16
//   (widened, rounded to nearest even)
//   add, subtract, multiply, divide, multiply_add (x * y + z), sum (of lanes)
//   max and min (y when either is NaN)
//   round (to nearest), scale_by_power (x * 2^n, n whole), select_from (x in lanes >= first, else
//   y) transpose (kLanes vectors in place)
// W says what a word of a panel is: FloatWords, WidenedWords, or PairWords of
// vector_avx512bf16_inl.h.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/gemm_epilogue_inl.h"
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
// Of the vectors of a row of a tile, those that begin a cache line where the row does: one fetch a
// line.
template <class V>
constexpr bool begins_line(int v) {
  return v * V::kLanes % static_cast<int>(64 / sizeof(float)) == 0;
}
template <class W>
void prefetch_ahead(const typename W::Element* x, std::int64_t stride) {
  for (int row = 0; row < W::kElements; ++row) {
    const std::int64_t ahead = (kAhead * W::kElements + row) * stride;
    prefetch_line(reinterpret_cast<std::uintptr_t>(x) +
                  static_cast<std::uintptr_t>(ahead) * sizeof(typename W::Element));
  }
}

// The lanes of vector v that lie left of `columns`.
template <class V>
int lanes_left(std::int64_t columns, int v) {
  const std::int64_t left = columns - v * V::kLanes;
  return static_cast<int>(left < 0 ? 0 : left > V::kLanes ? V::kLanes : left);
}

// along: kLanes words of one row from its element 0 on, zeros past `elements`. across: the word of
// row 0 (and, of pairs, row 1 when rows > 1) in `columns` neighbouring columns, zeros past them.
template <class Vec, typename T>
struct SingleWords {
  using V = Vec;
  using Element = T;
  using Vector = typename V::Vector;
  static constexpr int kElements = 1;
  static Vector along(const T* x, std::int64_t elements) {
    return load_lanes<V>(x, lanes_left<V>(elements, 0));
  }
  static Vector across(const T* x, std::int64_t /*stride*/, std::int64_t /*rows*/, int columns) {
    return load_lanes<V>(x, columns);
  }
  static Vector accumulate(Vector left, Vector right, Vector sum) {
    return V::multiply_add(left, right, sum);
  }
};
template <class V>
using FloatWords = SingleWords<V, float>;
template <class V>
using WidenedWords = SingleWords<V, bf16>;

// Inlined always: sums whose address a call takes would live in memory.
template <class V, int kRows, int kVectors, Edge kEdge, Beta kBeta, typename Element>
[[gnu::always_inline]] inline void store_sums(const GemmTile<Element>& tile,
                                              const typename V::Vector (&sum)[kRows][kVectors]) {
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
template <class W, int kRows, int kVectors, Right kRight, int kRowStep>
void multiply_rows(const GemmTile<typename W::Element>& tile) {
  using V = typename W::V;
  using Vector = typename V::Vector;
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v)
      if (begins_line<V>(v))
        prefetch_line(reinterpret_cast<std::uintptr_t>(tile.c + i * tile.c_stride + v * V::kLanes));
  Vector sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = V::zero();

  const float* a = tile.a;
  const float* b = tile.b;
  float* b_packed = tile.b_packed;
  const auto* unpacked = tile.unpacked.data;
  const std::int64_t a_step = tile.a_step;
  // A narrow tile has 6 cycles a step, some 36 instructions, of which 20 do the work: lines to
  // fetch come in runs of 16, so that an address costs an addition, and two steps share the loop's
  // own.
  constexpr std::int64_t kRun = 16;
  constexpr int kSteps = kRows * kVectors <= 14 ? 2 : 1;
  const auto line_step = static_cast<std::uintptr_t>(tile.prefetch.inner_step_bytes);
  const auto run_step = static_cast<std::uintptr_t>(tile.prefetch.outer_step_bytes);
  std::uintptr_t run =
      tile.prefetch.address != 0 ? tile.prefetch.address : reinterpret_cast<std::uintptr_t>(a);
  const auto step = [&](std::uintptr_t line) __attribute__((always_inline)) {
    Vector right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kRight == Right::kPacked) {
        right[v] = V::load(b + v * V::kLanes);
      } else {
        right[v] =
            W::across(unpacked + v * V::kLanes, tile.unpacked.stride, W::kElements, V::kLanes);
        V::store(b_packed + v * V::kLanes, right[v]);
        if (begins_line<V>(v)) prefetch_ahead<W>(unpacked + v * V::kLanes, tile.unpacked.stride);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vector left = V::broadcast(a + i * kRowStep);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[i][v] = W::accumulate(left, right[v], sum[i][v]);
    }
    prefetch_line(line);
    a += a_step;
    b += kVectors * V::kLanes;
    if constexpr (kRight == Right::kPackedOnTheWay) {
      b_packed += kVectors * V::kLanes;
      unpacked += W::kElements * tile.unpacked.stride;
    }
  };
  std::int64_t rest = tile.depth;
  for (; rest >= kRun; rest -= kRun, run += run_step) {
    std::uintptr_t line = run;
    for (int i = 0; i < kRun / kSteps; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < kSteps; ++j, line += line_step) step(line);
      // GCC would keep what they are after the run in two more registers, and run short.
      asm("" : "+r"(a), "+r"(b));
    }
  }
  for (; rest > 0; --rest, run += line_step) step(run);

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

template <class W, int kVectors, Right kRight, int kRowStep, int... kRowsLessOne>
void multiply_any(const GemmTile<typename W::Element>& tile,
                  std::integer_sequence<int, kRowsLessOne...>) {
  static constexpr void (*kByRows[])(const GemmTile<typename W::Element>&) = {
      multiply_rows<W, kRowsLessOne + 1, kVectors, kRight, kRowStep>...};
  kByRows[tile.rows - 1](tile);
}

constexpr std::int64_t words_of(std::int64_t elements, int word_elements) {
  return (elements + word_elements - 1) / word_elements;
}

// panel[k, i] = word k of source row i: square blocks are transposed in registers.
template <class W>
void pack_transposing(GemmSource<typename W::Element> source, std::int64_t rows,
                      std::int64_t elements, std::int64_t panel_rows, float* panel) {
  using V = typename W::V;
  const std::int64_t depth = words_of(elements, W::kElements);
  for (std::int64_t k = 0; k < depth; k += V::kLanes) {
    const int width = lanes_left<V>(depth - k, 0);
    for (std::int64_t first = 0; first < panel_rows; first += V::kLanes) {
      typename V::Vector block[V::kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < V::kLanes; ++i) {
        const auto* x = source.data + (first + i) * source.stride + k * W::kElements;
        block[i] = first + i < rows ? W::along(x, elements - k * W::kElements) : V::zero();
      }
      V::transpose(block);
      const int height = lanes_left<V>(panel_rows - first, 0);
      for (int i = 0; i < width; ++i)
        store_lanes<V>(panel + (k + i) * panel_rows + first, block[i], height);
    }
  }
}

// panel[k, i] = word k of source column i.
template <class W>
void pack_copying(GemmSource<typename W::Element> source, std::int64_t rows, std::int64_t elements,
                  std::int64_t panel_rows, float* panel) {
  using V = typename W::V;
  const std::int64_t depth = words_of(elements, W::kElements);
  for (std::int64_t first = 0; first < panel_rows; first += V::kLanes) {
    const int height = lanes_left<V>(panel_rows - first, 0);
    const int present = lanes_left<V>(rows - first, 0);
    for (std::int64_t k = 0; k < depth; ++k) {
      const auto* x = source.data + k * W::kElements * source.stride + first;
      const auto word = W::across(x, source.stride, elements - k * W::kElements, present);
      store_lanes<V>(panel + k * panel_rows + first, word, height);
    }
  }
}

template <class W, int kRows, int kVectors>
constexpr GemmKernels<typename W::Element> make_gemm_kernels() {
  using V = typename W::V;
  using Element = typename W::Element;
  using Source = GemmSource<Element>;
  constexpr std::int64_t kColumns = kVectors * V::kLanes;
  return {
      .tile_rows = kRows,
      .tile_columns = kColumns,
      .word_elements = W::kElements,
      .multiply =
          [](const GemmTile<Element>& tile) {
            constexpr auto kAllRows = std::make_integer_sequence<int, kRows>{};
            if (tile.unpacked.data == nullptr)
              multiply_any<W, kVectors, Right::kPacked, 1>(tile, kAllRows);
            else
              multiply_any<W, kVectors, Right::kPackedOnTheWay, 1>(tile, kAllRows);
          },
      .pack_a = [](Source a, std::int64_t rows, std::int64_t elements,
                   float* panel) { pack_transposing<W>(a, rows, elements, rows, panel); },
      .pack_a_transposed = [](Source a, std::int64_t rows, std::int64_t elements,
                              float* panel) { pack_copying<W>(a, rows, elements, rows, panel); },
      .pack_b = [](Source b, std::int64_t columns, std::int64_t elements,
                   float* panel) { pack_copying<W>(b, columns, elements, kColumns, panel); },
      .pack_b_transposed =
          [](Source b, std::int64_t columns, std::int64_t elements, float* panel) {
            pack_transposing<W>(b, columns, elements, kColumns, panel);
          },
      .finish = finish<V, Element>,
      .finish_wide = finish<V, float>,
  };
}

}  // namespace
}  // namespace sinew::kernels
