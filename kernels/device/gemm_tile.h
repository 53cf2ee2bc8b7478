// Tiles of A and B in shared memory: how they lie, how they are filled, how fragments come out.
//
// A tile covers kOuter rows of op(A) (or columns of op(B)) and kDepth of the summed dimension. It
// lies as it is stored: rows of kDepth elements where k is contiguous, else rows of kOuter. Within
// a row, chunks of 16 bytes are exchanged by the row's number, so that the eight rows of one
// ldmatrix lie in different banks.
#pragma once

#include <cstdint>

#include "kernels/device/gpu.h"

namespace sinew::kernels {

// An operand as a block sees it.
struct TilePlace {
  const bf16* data;
  std::int64_t outer_stride;  // elements from one row of op(A) (column of op(B)) to the next
  std::int64_t depth_stride;  // from one summand to the next
  std::int64_t outer;         // extents of the whole operand
  std::int64_t depth;
};

template <int kOuter, int kDepth, bool kDepthContiguous>
struct Tile {
  static constexpr bool kContiguous = kDepthContiguous;
  static constexpr int kRows = kDepthContiguous ? kOuter : kDepth;
  static constexpr int kChunks = (kDepthContiguous ? kDepth : kOuter) / 8;
  static constexpr int kElements = kOuter * kDepth;

  // Chunks that share a line of 128 bytes with their neighbours of the row above are exchanged
  // together with them.
  GPU_FUNCTION static int place(int row, int chunk) {
    constexpr int kRowsPerLine = kChunks >= 8 ? 1 : 8 / kChunks;
    constexpr int kMask = kChunks >= 8 ? 7 : kChunks - 1;
    return (row * kChunks + (chunk ^ (row / kRowsPerLine & kMask))) * 8;
  }

  // The 16x16 fragment of A at (outer, depth), both multiples of 16.
  GPU_FUNCTION static gpu::FragmentA load_a(const bf16* tile, int outer, int depth) {
    const int lane = gpu::lane();
    if constexpr (kDepthContiguous) {
      return gpu::load_matrices(tile + place(outer + lane % 16, depth / 8 + lane / 16));
    } else {
      const int row = depth + lane % 8 + lane / 16 * 8;
      return gpu::load_matrices_transposed(tile + place(row, outer / 8 + lane / 8 % 2));
    }
  }

  // Two 16x8 fragments of B at (depth, outer): columns outer to outer + 7 and the eight after.
  GPU_FUNCTION static gpu::FragmentA load_b(const bf16* tile, int outer, int depth) {
    const int lane = gpu::lane();
    if constexpr (kDepthContiguous) {
      const int row = outer + lane % 8 + lane / 16 * 8;
      return gpu::load_matrices(tile + place(row, depth / 8 + lane / 8 % 2));
    } else {
      return gpu::load_matrices_transposed(tile + place(depth + lane % 16, outer / 8 + lane / 16));
    }
  }
};

// Fills one tile after another along the depth by cp.async; what lies outside the operand becomes
// zero. Rows must begin at multiples of 16 bytes. Everything that does not change from tile to tile
// is worked out once: a thread's chunks lie kRowStep rows apart in one column of chunks.
template <typename TileType, int kOuter, int kDepth, bool kDepthContiguous, int kThreads>
class WideFiller {
 public:
  GPU_FUNCTION WideFiller(const TilePlace& from, std::int64_t first_outer, std::int64_t begin,
                          std::int64_t end)
      : row_(static_cast<int>(threadIdx.x) / TileType::kChunks),
        chunk_(static_cast<int>(threadIdx.x) % TileType::kChunks),
        stride_(kDepthContiguous ? from.outer_stride : from.depth_stride) {
    const std::int64_t outer = first_outer + (kDepthContiguous ? row_ : chunk_ * 8);
    const std::int64_t depth = begin + (kDepthContiguous ? chunk_ * 8 : row_);
    outside_ = from.data;
    next_ = from.data + outer * from.outer_stride + depth * from.depth_stride;
    outer_left_ = clip(from.outer - outer);
    depth_left_ = clip(end - depth);
  }

  GPU_FUNCTION void fill(bf16* tile) {
    UNROLL for (int i = 0; i < TileType::kRows / kRowStep; ++i) {
      const int row_left = (kDepthContiguous ? outer_left_ : depth_left_) - i * kRowStep;
      const int columns = kDepthContiguous ? depth_left_ : outer_left_;
      const int count = row_left <= 0 || columns <= 0 ? 0 : columns < 8 ? columns : 8;
      const bf16* source = count > 0 ? next_ + i * kRowStep * stride_ : outside_;
      gpu::async_copy16(tile + TileType::place(row_ + i * kRowStep, chunk_), source, count * 2);
    }
    next_ += kDepthContiguous ? kDepth : kDepth * stride_;
    depth_left_ -= kDepth;
  }

 private:
  static constexpr int kRowStep = kThreads / TileType::kChunks;
  static_assert(kThreads % TileType::kChunks == 0 && TileType::kRows % kRowStep == 0);

  // Beyond any tile's extent the exact number does not matter; an int is enough.
  GPU_FUNCTION static int clip(std::int64_t left) {
    constexpr std::int64_t kMany = 1 << 30;
    return static_cast<int>(left < -kMany ? -kMany : left > kMany ? kMany : left);
  }

  int row_;
  int chunk_;
  int outer_left_;
  int depth_left_;
  std::int64_t stride_;
  const bf16* next_;
  const bf16* outside_;
};

// The same element by element, for any strides and alignment.
template <typename TileType, int kOuter, int kDepth, int kThreads>
class NarrowFiller {
 public:
  GPU_FUNCTION NarrowFiller(const TilePlace& from, std::int64_t first_outer, std::int64_t begin,
                            std::int64_t end)
      : from_(from), first_outer_(first_outer), next_depth_(begin), end_(end) {}

  GPU_FUNCTION void fill(bf16* tile) {
    for (int i = static_cast<int>(threadIdx.x); i < kOuter * kDepth; i += kThreads) {
      const std::int64_t outer = first_outer_ + i / kDepth;
      const std::int64_t depth = next_depth_ + i % kDepth;
      bf16* target = tile + TileType::place(i / kDepth, i % kDepth / 8) + i % 8;
      const bool inside = outer < from_.outer && depth < end_;
      *target =
          inside ? from_.data[outer * from_.outer_stride + depth * from_.depth_stride] : bf16{0};
    }
    next_depth_ += kDepth;
  }

 private:
  TilePlace from_;
  std::int64_t first_outer_;
  std::int64_t next_depth_;
  std::int64_t end_;
};

}  // namespace sinew::kernels
