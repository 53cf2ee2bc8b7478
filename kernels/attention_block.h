// The blocks of attention: how a head's matrices are packed into operands of the tiles, the scores
// of a block of queries against a block of keys, and the products over them. Internal to
// attention_blocked.cc, which puts them in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/attention_tile.h"
#include "kernels/scratch.h"
#include "sched/base/partition.h"

namespace sinew::kernels {
namespace {

// One head's matrix inside a view: row t starts at data + t * stride.
template <typename T>
struct HeadRows {
  T* data;
  std::int64_t stride;
  [[nodiscard]] T* row(std::int64_t t) const { return data + t * stride; }
};
template <typename T>
HeadRows<T> head_rows(HeadView<T> x, std::int64_t batch, std::int64_t head, std::int64_t head_dim) {
  return {x.data + batch * x.batch_stride + head * head_dim, x.time_stride};
}

// Block sizes and the packing of matrices [time, head_dim] into the operands of the tiles.
template <typename T>
struct Layout {
  Layout(const AttentionKernels<T>& k, std::int64_t dim)
      : kernels(k),
        gemm(*k.gemm),
        head_dim(dim),
        dim_words(words(dim)),
        padded_dim(round_up(dim, gemm.tile_columns)),
        key_block(112 / gemm.tile_rows * gemm.tile_rows) {}

  // Words that hold `count` elements.
  [[nodiscard]] std::int64_t words(std::int64_t count) const {
    return ceil_divide(count, gemm.word_elements);
  }
  [[nodiscard]] bool has_pairs() const { return gemm.word_elements == 2; }

  // The rows of a block, cut into parts of at most tile_rows.
  [[nodiscard]] std::int64_t row_parts(std::int64_t rows) const {
    return ceil_divide(rows, gemm.tile_rows);
  }
  [[nodiscard]] Part row_part(std::int64_t rows, std::int64_t i) const {
    return partition(rows, row_parts(rows), i);
  }

  // A panels [dim_words, rows of a part] of the rows of `block`, one after the other.
  void pack_rows(HeadRows<const T> x, Part block, float* packed) const {
    for (std::int64_t i = 0; i < row_parts(block.count); ++i) {
      const Part part = row_part(block.count, i);
      gemm.pack_a({x.row(block.offset + part.offset), x.stride}, part.count, head_dim,
                  packed + part.offset * dim_words);
    }
  }
  // B panels [dim_words, tile_columns]: rows of x as columns.
  void pack_transposed(HeadRows<const T> x, Part block, float* packed) const {
    for (std::int64_t i = 0; i < block.count; i += gemm.tile_columns)
      gemm.pack_b_transposed({x.row(block.offset + i), x.stride},
                             std::min(gemm.tile_columns, block.count - i), head_dim,
                             packed + i * dim_words);
  }
  // B panels [words of the block's rows, tile_columns]: columns of x.
  void pack_columns(HeadRows<const T> x, Part block, float* packed) const {
    for (std::int64_t d = 0; d < head_dim; d += gemm.tile_columns)
      gemm.pack_b({x.row(block.offset) + d, x.stride}, std::min(gemm.tile_columns, head_dim - d),
                  block.count, packed + d * words(block.count));
  }

  const AttentionKernels<T>& kernels;
  const GemmKernels<T>& gemm;
  std::int64_t head_dim;
  std::int64_t dim_words;
  std::int64_t padded_dim;
  std::int64_t key_block;
};

inline std::int64_t block_count(std::int64_t time, std::int64_t size) {
  return ceil_divide(time, size);
}
inline Part block_at(std::int64_t time, std::int64_t size, std::int64_t i) {
  return {i * size, std::min(size, time - i * size)};
}

// A block of queries against a block of keys.
struct Crossing {
  Part queries;
  Part keys;
  std::int64_t diagonal;  // query i of the block sees its key j iff j <= i + diagonal

  // Keys of the block that the first `count` queries of the block see, at most.
  [[nodiscard]] std::int64_t keys_seen(std::int64_t count) const {
    return std::clamp<std::int64_t>(count + diagonal, 0, keys.count);
  }
  // The first query of the block that sees key j.
  [[nodiscard]] std::int64_t first_query(std::int64_t j) const {
    return std::max<std::int64_t>(0, j - diagonal);
  }
};

inline Crossing crossing(Part queries, Part keys, KeySpan span) {
  return {queries, keys, span.diagonal + queries.offset - keys.offset};
}

// The scores of a block and, where words are pairs, the weights in the forms that are read later.
// At block boundaries, multiples of 2, words are whole.
template <typename T>
struct Scores {
  Scores(const Layout<T>& layout, bool has_across)
      : scores(allocate_scratch<float>(layout.key_block * kScoreStride)) {
    if (!layout.has_pairs()) return;
    down = allocate_scratch<float>(layout.key_block / 2 * kScoreStride);
    if (has_across) across = allocate_scratch<float>(layout.key_block * kScoreStride / 2);
  }
  [[nodiscard]] ScoreWords words(std::int64_t first) const {
    return {down ? down.get() + first : nullptr, across ? across.get() + first / 2 : nullptr};
  }
  [[nodiscard]] const float* read_down() const { return down ? down.get() : scores.get(); }
  [[nodiscard]] const float* read_across() const { return across ? across.get() : scores.get(); }
  // Rows [seen, limit) of a panel hold no weight, but later products read them.
  void clear_unseen(const Layout<T>& layout, std::int64_t first, std::int64_t seen,
                    std::int64_t limit) const {
    const std::int64_t width = layout.gemm.tile_columns;
    const auto clear = [&](float* x, std::int64_t begin, std::int64_t end, std::int64_t stride,
                           std::int64_t count) {
      for (std::int64_t row = begin; row < end; ++row) std::fill_n(x + row * stride, count, 0.0F);
    };
    if (!layout.has_pairs()) return clear(scores.get() + first, seen, limit, kScoreStride, width);
    clear(down.get() + first, layout.words(seen), layout.words(limit), kScoreStride, width);
    if (across) clear(across.get() + first / 2, seen, limit, kScoreStride / 2, width / 2);
  }

  Scratch<float> scores;
  Scratch<float> down;
  Scratch<float> across;
};

// result[key, query] = alpha * rows[key] . columns[query] for one panel of queries, only where the
// panel's last query sees the key.
template <typename T>
void score_panel(const Layout<T>& layout, const Crossing& at, std::int64_t first, float alpha,
                 const float* rows, const float* columns, float* result) {
  const auto& gemm = layout.gemm;
  const std::int64_t last = std::min(first + gemm.tile_columns, at.queries.count);
  const std::int64_t seen = at.keys_seen(last);
  for (std::int64_t i = 0; i < layout.row_parts(at.keys.count); ++i) {
    const Part part = layout.row_part(at.keys.count, i);
    if (part.offset >= seen) return;
    gemm.multiply({.rows = part.count,
                   .columns = gemm.tile_columns,
                   .depth = layout.dim_words,
                   .alpha = alpha,
                   .beta = 0,
                   .a = rows + part.offset * layout.dim_words,
                   .a_step = part.count,
                   .b = columns + first * layout.dim_words,
                   .c = result + part.offset * kScoreStride + first,
                   .c_stride = kScoreStride});
  }
}

// target[query, :] += alpha * sum over keys of weights[key, query] values[key, :].
template <typename T>
void add_over_keys(const Layout<T>& layout, const Crossing& at, float alpha,
                   const Scores<T>& weights, const float* values, HeadRows<float> target) {
  const auto& gemm = layout.gemm;
  for (std::int64_t d = 0; d < layout.head_dim; d += gemm.tile_columns) {
    for (std::int64_t i = 0; i < layout.row_parts(at.queries.count); ++i) {
      const Part part = layout.row_part(at.queries.count, i);
      const std::int64_t seen = at.keys_seen(part.offset + part.count);
      if (seen == 0) continue;
      gemm.multiply({.rows = part.count,
                     .columns = std::min(gemm.tile_columns, layout.head_dim - d),
                     .depth = layout.words(seen),
                     .alpha = alpha,
                     .beta = 1,
                     .a = weights.read_down() + part.offset,
                     .a_step = kScoreStride,
                     .b = values + d * layout.words(at.keys.count),
                     .c = target.row(part.offset) + d,
                     .c_stride = target.stride});
    }
  }
}

// target[key, :] += alpha * sum over queries of weights[key, query] values[query, :].
template <typename T>
void add_over_queries(const Layout<T>& layout, const Crossing& at, float alpha,
                      const Scores<T>& weights, const float* values, HeadRows<float> target) {
  const auto& gemm = layout.gemm;
  const std::int64_t word = gemm.word_elements;
  const std::int64_t limit = at.keys_seen(at.queries.count);
  for (std::int64_t d = 0; d < layout.head_dim; d += gemm.tile_columns) {
    for (std::int64_t i = 0; i < layout.row_parts(limit); ++i) {
      const Part part = layout.row_part(limit, i);
      const std::int64_t first = at.first_query(part.offset) / word;
      layout.kernels.multiply_across(
          {.rows = part.count,
           .columns = std::min(gemm.tile_columns, layout.head_dim - d),
           .depth = layout.words(at.queries.count) - first,
           .alpha = alpha,
           .beta = 1,
           .a = weights.read_across() + part.offset * kScoreStride / word + first,
           .a_step = 1,
           .b = values + d * layout.words(at.queries.count) + first * gemm.tile_columns,
           .c = target.row(part.offset) + d,
           .c_stride = target.stride});
    }
  }
}

}  // namespace
}  // namespace sinew::kernels
