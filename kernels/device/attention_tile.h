// What the attention kernels share: rows of one head as tiles in shared memory, products of tiles
// in registers, masks, and the launch.
//
// A block has four warps of 16 rows of its own tile. The head's width is kWidth in shared memory,
// zero beyond head_dim.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/attention_gpu.h"
#include "kernels/device/gemm_tile.h"
#include "kernels/device/gpu.h"
#include "kernels/device/shapes.h"
#include "sched/base/check.h"

namespace sinew::kernels {

constexpr int kAttentionThreads = 128;
constexpr int kOwnRows = kAttentionThreads / gpu::kWarp * 16;

// Rows of one head of one sequence.
template <typename T>
struct HeadRows {
  T* data;
  std::int64_t stride;
  std::int64_t rows;
  GPU_FUNCTION T* row(std::int64_t index) const { return data + index * stride; }
};

template <typename T>
GPU_FUNCTION HeadRows<T> head_rows(const HeadView<T>& view, std::int64_t batch, std::int64_t head,
                                   std::int64_t head_dim, std::int64_t rows) {
  return {view.data + batch * view.batch_stride + head * head_dim, view.time_stride, rows};
}

// Tiles of rows as A or B of a product over the width, and as B of a product over the rows: the
// same bytes.
template <int kRows, int kWidth>
using AcrossWidth = Tile<kRows, kWidth, true>;
template <int kRows, int kWidth>
using AcrossRows = Tile<kWidth, kRows, false>;

// Queues the copies of rows [first, first + kRows); what lies outside becomes zero.
template <int kRows, int kWidth>
GPU_FUNCTION void fill_rows(bf16* tile, const HeadRows<const bf16>& from, std::int64_t first,
                            std::int64_t head_dim) {
  constexpr int kChunks = kWidth / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kAttentionThreads) {
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    const bool inside = first + row < from.rows && chunk * 8 < head_dim;
    const bf16* source = inside ? from.row(first + row) + chunk * 8 : from.data;
    gpu::async_copy16(tile + AcrossWidth<kRows, kWidth>::place(row, chunk), source,
                      inside ? 16 : 0);
  }
}

// sums[16 x kColumns] of this warp.
template <int kColumns>
struct WarpSums {
  gpu::FragmentC block[kColumns / 8] = {};
};

// This warp's 16 rows of `own` times the rows of `other`: sums over the width.
template <int kOther, int kWidth>
GPU_FUNCTION void multiply_across_width(WarpSums<kOther>& sums, const bf16* own,
                                        const bf16* other) {
  UNROLL for (int d = 0; d < kWidth; d += 16) {
    const gpu::FragmentA a = AcrossWidth<kOwnRows, kWidth>::load_a(own, gpu::warp() * 16, d);
    UNROLL for (int n = 0; n < kOther; n += 16) {
      const gpu::FragmentA b = AcrossWidth<kOther, kWidth>::load_b(other, n, d);
      gpu::multiply_add(sums.block[n / 8], a, gpu::half(b, 0));
      gpu::multiply_add(sums.block[n / 8 + 1], a, gpu::half(b, 1));
    }
  }
}

// weights [16 x kOther], rounded to bf16, times the rows of `other`: sums over those rows.
template <int kOther, int kWidth>
GPU_FUNCTION void multiply_across_rows(WarpSums<kWidth>& sums, const WarpSums<kOther>& weights,
                                       const bf16* other) {
  UNROLL for (int n = 0; n < kOther; n += 16) {
    const float* left = weights.block[n / 8].v;
    const float* right = weights.block[n / 8 + 1].v;
    const gpu::FragmentA a = {{gpu::pack_bf16(left[0], left[1]), gpu::pack_bf16(left[2], left[3]),
                               gpu::pack_bf16(right[0], right[1]),
                               gpu::pack_bf16(right[2], right[3])}};
    UNROLL for (int d = 0; d < kWidth; d += 16) {
      const gpu::FragmentA b = AcrossRows<kOther, kWidth>::load_b(other, d, n);
      gpu::multiply_add(sums.block[d / 8], a, gpu::half(b, 0));
      gpu::multiply_add(sums.block[d / 8 + 1], a, gpu::half(b, 1));
    }
  }
}

// Row (0 or 1) and column of element i of a lane's four in a block of 16 x 8.
GPU_FUNCTION int own_row(int half) { return gpu::warp() * 16 + gpu::lane() / 4 + half * 8; }
GPU_FUNCTION int own_column(int i) { return gpu::lane() % 4 * 2 + i % 2; }

// Of the keys from first_key on the query sees the first so many; of the queries from first_query
// on the first so many do not see the key. Once for a row of a tile, in place of a comparison in 64
// bits for each element; clipped to what any tile can ask for.
constexpr std::int64_t kTileMost = 1024;
GPU_FUNCTION int clip_to_tile(std::int64_t count) {
  return static_cast<int>(count < 0 ? 0 : count < kTileMost ? count : kTileMost);
}
GPU_FUNCTION int keys_seen(const KeySpan& keys, std::int64_t query, std::int64_t first_key) {
  const std::int64_t end = query + keys.diagonal + 1;
  return clip_to_tile((end < keys.time ? end : keys.time) - first_key);
}
GPU_FUNCTION int queries_blind(const KeySpan& keys, std::int64_t first_query, std::int64_t key) {
  return clip_to_tile(key < keys.time ? key - keys.diagonal - first_query : kTileMost);
}

// A row without keys has lse -infinity; any weight then is 0, also that of a score of -infinity.
GPU_FUNCTION float usable_lse2(float lse) {
  return lse == -INFINITY ? INFINITY : lse * gpu::kLog2E;
}

// Stores (bf16) or adds (float) two neighbours.
GPU_FUNCTION void put_pair(bf16* place, float first, float second) {
  gpu::store_values(place, gpu::Values<2>{{first, second}});
}
GPU_FUNCTION void put_pair(float* place, float first, float second) {
  place[0] += first;
  place[1] += second;
}

template <int kWidth, typename Out>
GPU_FUNCTION void put_rows(const HeadRows<Out>& to, std::int64_t first, std::int64_t head_dim,
                           const WarpSums<kWidth>& sums, float factor) {
  UNROLL for (int h = 0; h < 2; ++h) {
    const std::int64_t row = first + own_row(h);
    if (row >= to.rows) continue;
    UNROLL for (int n = 0; n < kWidth / 8; ++n) {
      const int column = n * 8 + own_column(0);
      if (column >= head_dim) continue;
      const float* v = sums.block[n].v + 2 * h;
      put_pair(to.row(row) + column, factor * v[0], factor * v[1]);
    }
  }
}

[[nodiscard]] inline float score_scale(std::int64_t head_dim) {
  return 1.0F / sqrtf(static_cast<float>(head_dim));
}

template <typename T>
void check_view(const HeadView<T>& view) {
  CHECK(is_aligned16(view.data));
  CHECK_EQ(view.batch_stride % 8, 0);
  CHECK_EQ(view.time_stride % 8, 0);
}

template <typename... Views>
void check_views(const Views&... views) {
  (check_view(views), ...);
}

inline void check_attention(const AttentionShape& shape) {
  CHECK_GE(shape.kv_heads, 1);
  CHECK_EQ(shape.heads % shape.kv_heads, 0);
  CHECK_EQ(shape.head_dim % 8, 0);
  CHECK_LE(shape.head_dim, kAttentionWidthMax);
}

// One block for each tile of `rows` rows of each of `heads` heads of each sequence.
[[nodiscard]] inline device::LaunchShape attention_blocks(std::int64_t rows, std::int64_t heads,
                                                          std::int64_t batch,
                                                          std::size_t shared_bytes) {
  return {.grid = {static_cast<unsigned>((rows + kOwnRows - 1) / kOwnRows),
                   static_cast<unsigned>(heads), static_cast<unsigned>(batch)},
          .block = {kAttentionThreads},
          .shared_bytes = shared_bytes};
}

// Calls launch(width) with the width of the tiles as a constant.
template <typename Launch>
void with_head_width(std::int64_t head_dim, Launch&& launch) {
  if (head_dim <= 64) {
    launch(std::integral_constant<int, 64>{});
  } else {
    launch(std::integral_constant<int, 128>{});
  }
}

}  // namespace sinew::kernels
