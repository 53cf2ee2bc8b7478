// Attention in blocks of 128 queries by about 112 keys, on the inner kernels of one instruction
// set.
//
// What lies where, for head_dim 128 (64: half): the scores of a block 64 KiB, its keys and values
// 57 KiB each, its queries and outputs 64 KiB each: together they fit the second level of 512 KiB
// and more, and the tiles stream them from there as GEMM's do. A panel of scores (112 keys x 32
// queries, 14 KiB) is written, turned into weights and read again while it is in the first level.
//
// Blocks, tiles and rows of weights right of the diagonal are skipped, so the work beyond T^2/2 is
// that of the 14 x 32 tiles the diagonal crosses.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_tile.h"
#include "kernels/scratch.h"

namespace sinew::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2 = 0.6931471805599453;

constexpr std::int64_t ceil_divide(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return ceil_divide(value, unit) * unit;
}

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
struct Layout {
  Layout(const AttentionKernels& k, std::int64_t dim)
      : kernels(k),
        gemm(*k.gemm),
        head_dim(dim),
        padded_dim(round_up(dim, gemm.tile_columns)),
        key_block(112 / gemm.tile_rows * gemm.tile_rows) {}

  // The rows of a block, cut into parts of at most tile_rows.
  [[nodiscard]] std::int64_t row_parts(std::int64_t rows) const {
    return ceil_divide(rows, gemm.tile_rows);
  }
  [[nodiscard]] Part row_part(std::int64_t rows, std::int64_t i) const {
    return partition(rows, row_parts(rows), i);
  }

  // A panels [head_dim, rows of a part] of the rows of `block`, one after the other.
  void pack_rows(HeadRows<const float> x, Part block, float* packed) const {
    for (std::int64_t i = 0; i < row_parts(block.count); ++i) {
      const Part part = row_part(block.count, i);
      gemm.pack_a({x.row(block.offset + part.offset), x.stride}, part.count, head_dim,
                  packed + part.offset * head_dim);
    }
  }
  // B panels [head_dim, tile_columns]: rows of x as columns.
  void pack_transposed(HeadRows<const float> x, Part block, float* packed) const {
    for (std::int64_t i = 0; i < block.count; i += gemm.tile_columns)
      gemm.pack_b_transposed({x.row(block.offset + i), x.stride},
                             std::min(gemm.tile_columns, block.count - i), head_dim,
                             packed + i * head_dim);
  }
  // B panels [rows of the block, tile_columns]: columns of x.
  void pack_columns(HeadRows<const float> x, Part block, float* packed) const {
    for (std::int64_t d = 0; d < head_dim; d += gemm.tile_columns)
      gemm.pack_b({x.row(block.offset) + d, x.stride}, std::min(gemm.tile_columns, head_dim - d),
                  block.count, packed + d * block.count);
  }

  const AttentionKernels& kernels;
  const GemmKernels<float>& gemm;
  std::int64_t head_dim;
  std::int64_t padded_dim;
  std::int64_t key_block;
};

std::int64_t block_count(std::int64_t time, std::int64_t size) { return ceil_divide(time, size); }
Part block_at(std::int64_t time, std::int64_t size, std::int64_t i) {
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

Crossing crossing(Part queries, Part keys, KeySpan span) {
  return {queries, keys, span.diagonal + queries.offset - keys.offset};
}

// result[key, query] = alpha * rows[key] . columns[query] for one panel of queries, only where the
// panel's last query sees the key.
void score_panel(const Layout& layout, const Crossing& at, std::int64_t first, float alpha,
                 const float* rows, const float* columns, float* result) {
  const GemmKernels<float>& gemm = layout.gemm;
  const std::int64_t last = std::min(first + gemm.tile_columns, at.queries.count);
  const std::int64_t seen = at.keys_seen(last);
  for (std::int64_t i = 0; i < layout.row_parts(at.keys.count); ++i) {
    const Part part = layout.row_part(at.keys.count, i);
    if (part.offset >= seen) return;
    gemm.multiply({.rows = part.count,
                   .columns = gemm.tile_columns,
                   .depth = layout.head_dim,
                   .alpha = alpha,
                   .beta = 0,
                   .a = rows + part.offset * layout.head_dim,
                   .a_step = part.count,
                   .b = columns + first * layout.head_dim,
                   .c = result + part.offset * kScoreStride + first,
                   .c_stride = kScoreStride});
  }
}

// Rows [seen, limit) of a panel hold no weight, but later products read them.
void clear_unseen(const Layout& layout, std::int64_t first, std::int64_t seen, std::int64_t limit,
                  float* weights) {
  for (std::int64_t key = seen; key < limit; ++key)
    std::fill_n(weights + key * kScoreStride + first, layout.gemm.tile_columns, 0.0F);
}

// target[query, :] += alpha * sum over keys of weights[key, query] values[key, :].
void add_over_keys(const Layout& layout, const Crossing& at, float alpha, const float* weights,
                   const float* values, HeadRows<float> target) {
  const GemmKernels<float>& gemm = layout.gemm;
  for (std::int64_t d = 0; d < layout.head_dim; d += gemm.tile_columns) {
    for (std::int64_t i = 0; i < layout.row_parts(at.queries.count); ++i) {
      const Part part = layout.row_part(at.queries.count, i);
      const std::int64_t seen = at.keys_seen(part.offset + part.count);
      if (seen == 0) continue;
      gemm.multiply({.rows = part.count,
                     .columns = std::min(gemm.tile_columns, layout.head_dim - d),
                     .depth = seen,
                     .alpha = alpha,
                     .beta = 1,
                     .a = weights + part.offset,
                     .a_step = kScoreStride,
                     .b = values + d * at.keys.count,
                     .c = target.row(part.offset) + d,
                     .c_stride = target.stride});
    }
  }
}

// target[key, :] += alpha * sum over queries of weights[key, query] values[query, :].
void add_over_queries(const Layout& layout, const Crossing& at, float alpha, const float* weights,
                      const float* values, HeadRows<float> target) {
  const GemmKernels<float>& gemm = layout.gemm;
  const std::int64_t limit = at.keys_seen(at.queries.count);
  for (std::int64_t d = 0; d < layout.head_dim; d += gemm.tile_columns) {
    for (std::int64_t i = 0; i < layout.row_parts(limit); ++i) {
      const Part part = layout.row_part(limit, i);
      const std::int64_t first = at.first_query(part.offset);
      layout.kernels.multiply_scores(
          {.rows = part.count,
           .columns = std::min(gemm.tile_columns, layout.head_dim - d),
           .depth = at.queries.count - first,
           .alpha = alpha,
           .beta = 1,
           .a = weights + part.offset * kScoreStride + first,
           .a_step = 1,
           .b = values + d * at.queries.count + first * gemm.tile_columns,
           .c = target.row(part.offset) + d,
           .c_stride = target.stride});
    }
  }
}

// The forward pass of one key-value head and the query heads that share it.
class ForwardPair {
 public:
  ForwardPair(const AttentionKernels& kernels, const AttentionShape& shape, KeySpan span)
      : layout_(kernels, shape.head_dim),
        shape_(shape),
        span_(span),
        score_scale_(static_cast<float>(kLog2E / std::sqrt(static_cast<double>(shape.head_dim)))),
        keys_(allocate_scratch<float>(span.time * shape.head_dim)),
        values_(allocate_scratch<float>(span.time * layout_.padded_dim)),
        queries_(allocate_scratch<float>(kScoreQueries * shape.head_dim)),
        outputs_(allocate_scratch<float>(kScoreQueries * layout_.padded_dim)),
        scores_(allocate_scratch<float>(layout_.key_block * kScoreStride)) {}

  void pack_keys(HeadRows<const float> k, HeadRows<const float> v) {
    for (std::int64_t j = 0; j < block_count(span_.time, layout_.key_block); ++j) {
      const Part keys = block_at(span_.time, layout_.key_block, j);
      layout_.pack_rows(k, keys, keys_.get() + keys.offset * layout_.head_dim);
      layout_.pack_columns(v, keys, values_.get() + keys.offset * layout_.padded_dim);
    }
  }

  void run_head(HeadRows<const float> q, HeadRows<float> o, float* lse) {
    for (std::int64_t i = 0; i < block_count(shape_.time, kScoreQueries); ++i)
      run_queries(block_at(shape_.time, kScoreQueries, i), q, o, lse);
  }

 private:
  void run_queries(Part queries, HeadRows<const float> q, HeadRows<float> o, float* lse) {
    layout_.pack_transposed(q, queries, queries_.get());
    start(queries, o, lse);
    for (std::int64_t j = 0; j < block_count(span_.time, layout_.key_block); ++j) {
      const Crossing at = crossing(queries, block_at(span_.time, layout_.key_block, j), span_);
      if (at.keys_seen(queries.count) == 0) break;
      cross(at);
    }
    finish(queries, o, lse);
  }

  // An earlier result counts as one key of score lse and value o.
  void start(Part queries, HeadRows<float> o, const float* lse) {
    for (std::int64_t i = 0; i < kScoreQueries; ++i) {
      largest_[i] = -kInfinity;
      sum_[i] = 0;
      if (i >= queries.count) continue;
      std::copy_n(o.row(queries.offset + i), layout_.head_dim, output(i));
      const float before = lse[queries.offset + i];
      if (before == -kInfinity) continue;
      largest_[i] = static_cast<float>(before * kLog2E);
      sum_[i] = 1;
    }
  }

  void cross(const Crossing& at) {
    const std::int64_t width = layout_.gemm.tile_columns;
    const std::int64_t limit = at.keys_seen(at.queries.count);
    const float* keys = keys_.get() + at.keys.offset * layout_.head_dim;
    for (std::int64_t first = 0; first < at.queries.count; first += width) {
      const std::int64_t seen = at.keys_seen(std::min(first + width, at.queries.count));
      score_panel(layout_, at, first, score_scale_, keys, queries_.get(), scores_.get());
      layout_.kernels.softmax({scores_.get() + first, seen, first + at.diagonal}, largest_ + first,
                              sum_ + first, shrink_ + first);
      clear_unseen(layout_, first, seen, limit, scores_.get());
    }
    for (std::int64_t i = 0; i < at.queries.count; ++i)
      if (shrink_[i] != 1)
        layout_.kernels.scale_row(shrink_[i], output(i), output(i), layout_.head_dim);
    add_over_keys(layout_, at, 1, scores_.get(),
                  values_.get() + at.keys.offset * layout_.padded_dim,
                  {outputs_.get(), layout_.padded_dim});
  }

  void finish(Part queries, HeadRows<float> o, float* lse) {
    for (std::int64_t i = 0; i < queries.count; ++i) {
      if (sum_[i] == 0) continue;
      layout_.kernels.scale_row(1 / sum_[i], output(i), o.row(queries.offset + i),
                                layout_.head_dim);
      lse[queries.offset + i] = static_cast<float>(kLn2 * largest_[i]) + std::log(sum_[i]);
    }
  }

  [[nodiscard]] float* output(std::int64_t i) { return outputs_.get() + i * layout_.padded_dim; }

  Layout layout_;
  AttentionShape shape_;
  KeySpan span_;
  float score_scale_;
  Scratch<float> keys_;
  Scratch<float> values_;
  Scratch<float> queries_;
  Scratch<float> outputs_;
  Scratch<float> scores_;
  alignas(64) float largest_[kScoreQueries];
  alignas(64) float sum_[kScoreQueries];
  alignas(64) float shrink_[kScoreQueries];
};

// The backward pass of one key-value head and the query heads that share it.
class BackwardPair {
 public:
  BackwardPair(const AttentionKernels& kernels, const AttentionShape& shape, KeySpan span)
      : layout_(kernels, shape.head_dim),
        shape_(shape),
        span_(span),
        scale_(1 / std::sqrt(static_cast<float>(shape.head_dim))),
        keys_(allocate_scratch<float>(layout_.key_block * shape.head_dim)),
        values_(allocate_scratch<float>(layout_.key_block * shape.head_dim)),
        key_columns_(allocate_scratch<float>(layout_.key_block * layout_.padded_dim)),
        scores_(allocate_scratch<float>(layout_.key_block * kScoreStride)),
        d_weights_(allocate_scratch<float>(layout_.key_block * kScoreStride)) {
    const std::int64_t time = round_up(shape.time, kScoreQueries);
    for (Scratch<float>* x : {&queries_, &d_outputs_})
      *x = allocate_scratch<float>(time * shape.head_dim);
    for (Scratch<float>* x : {&query_columns_, &d_output_columns_})
      *x = allocate_scratch<float>(time * layout_.padded_dim);
    for (Scratch<float>* x : {&lse2_, &row_dot_}) *x = allocate_scratch<float>(time);
  }

  struct Head {
    HeadRows<const float> q;
    HeadRows<const float> d_o;
    HeadRows<float> d_q;
    const float* lse;
    const float* row_dot;
  };
  struct KeyValue {
    HeadRows<const float> k;
    HeadRows<const float> v;
    HeadRows<float> d_k;
    HeadRows<float> d_v;
  };

  void run_head(const Head& head, const KeyValue& pair) {
    pack_queries(head);
    for (std::int64_t j = 0; j < block_count(span_.time, layout_.key_block); ++j) {
      const Part keys = block_at(span_.time, layout_.key_block, j);
      layout_.pack_rows(pair.k, keys, keys_.get());
      layout_.pack_rows(pair.v, keys, values_.get());
      layout_.pack_columns(pair.k, keys, key_columns_.get());
      for (std::int64_t i = 0; i < block_count(shape_.time, kScoreQueries); ++i)
        cross(crossing(block_at(shape_.time, kScoreQueries, i), keys, span_), head, pair);
    }
  }

 private:
  void pack_queries(const Head& head) {
    for (std::int64_t i = 0; i < block_count(shape_.time, kScoreQueries); ++i) {
      const Part queries = block_at(shape_.time, kScoreQueries, i);
      layout_.pack_transposed(head.q, queries, queries_.get() + queries.offset * shape_.head_dim);
      layout_.pack_transposed(head.d_o, queries,
                              d_outputs_.get() + queries.offset * shape_.head_dim);
      layout_.pack_columns(head.q, queries,
                           query_columns_.get() + queries.offset * layout_.padded_dim);
      layout_.pack_columns(head.d_o, queries,
                           d_output_columns_.get() + queries.offset * layout_.padded_dim);
    }
    const std::int64_t padded = round_up(shape_.time, kScoreQueries);
    for (std::int64_t t = 0; t < padded; ++t) {
      lse2_[t] = t < shape_.time ? static_cast<float>(kLog2E * head.lse[t]) : 0.0F;
      row_dot_[t] = t < shape_.time ? head.row_dot[t] : 0.0F;
    }
  }

  void cross(const Crossing& at, const Head& head, const KeyValue& pair) {
    const std::int64_t width = layout_.gemm.tile_columns;
    const std::int64_t limit = at.keys_seen(at.queries.count);
    if (limit == 0) return;
    const std::int64_t dim = layout_.head_dim;
    const float* queries = queries_.get() + at.queries.offset * dim;
    const float* d_outputs = d_outputs_.get() + at.queries.offset * dim;
    for (std::int64_t first = 0; first < at.queries.count; first += width) {
      const std::int64_t seen = at.keys_seen(std::min(first + width, at.queries.count));
      score_panel(layout_, at, first, static_cast<float>(kLog2E) * scale_, keys_.get(), queries,
                  scores_.get());
      score_panel(layout_, at, first, 1, values_.get(), d_outputs, d_weights_.get());
      layout_.kernels.softmax_backward(
          {scores_.get() + first, seen, first + at.diagonal}, d_weights_.get() + first,
          lse2_.get() + at.queries.offset + first, row_dot_.get() + at.queries.offset + first);
      clear_unseen(layout_, first, seen, limit, scores_.get());
      clear_unseen(layout_, first, seen, limit, d_weights_.get());
    }
    const float* d_scores = d_weights_.get();
    const std::int64_t columns = at.queries.offset * layout_.padded_dim;
    add_over_queries(layout_, at, 1, scores_.get(), d_output_columns_.get() + columns,
                     {pair.d_v.row(at.keys.offset), pair.d_v.stride});
    add_over_queries(layout_, at, scale_, d_scores, query_columns_.get() + columns,
                     {pair.d_k.row(at.keys.offset), pair.d_k.stride});
    add_over_keys(layout_, at, scale_, d_scores, key_columns_.get(),
                  {head.d_q.row(at.queries.offset), head.d_q.stride});
  }

  Layout layout_;
  AttentionShape shape_;
  KeySpan span_;
  float scale_;
  Scratch<float> keys_;
  Scratch<float> values_;
  Scratch<float> key_columns_;
  Scratch<float> scores_;
  Scratch<float> d_weights_;
  Scratch<float> queries_;
  Scratch<float> d_outputs_;
  Scratch<float> query_columns_;
  Scratch<float> d_output_columns_;
  Scratch<float> lse2_;
  Scratch<float> row_dot_;
};

// Calls body(batch, kv_head) for every pair of the range.
template <typename Body>
void for_each_pair(const AttentionShape& shape, Part pairs, Body&& body) {
  for (std::int64_t i = pairs.offset; i < pairs.offset + pairs.count; ++i)
    body(i / shape.kv_heads, i % shape.kv_heads);
}

void forward(const AttentionKernels& kernels, const AttentionShape& shape, KeySpan span, Part pairs,
             HeadView<const float> q, HeadView<const float> k, HeadView<const float> v,
             HeadView<float> o, float* lse) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads;
  ForwardPair pair(kernels, shape, span);
  for_each_pair(shape, pairs, [&](std::int64_t batch, std::int64_t kv_head) {
    pair.pack_keys(head_rows(k, batch, kv_head, dim), head_rows(v, batch, kv_head, dim));
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      pair.run_head(head_rows(q, batch, head, dim), head_rows(o, batch, head, dim),
                    lse + (batch * shape.heads + head) * shape.time);
  });
}

void backward(const AttentionKernels& kernels, const AttentionShape& shape, KeySpan span,
              Part pairs, HeadView<const float> q, HeadView<const float> k, HeadView<const float> v,
              const float* lse, const float* row_dot, HeadView<const float> d_o,
              HeadView<float> d_q, HeadView<float> d_k, HeadView<float> d_v) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads;
  BackwardPair pair(kernels, shape, span);
  for_each_pair(shape, pairs, [&](std::int64_t batch, std::int64_t kv_head) {
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const std::int64_t row = (batch * shape.heads + head) * shape.time;
      pair.run_head({head_rows(q, batch, head, dim), head_rows(d_o, batch, head, dim),
                     head_rows(d_q, batch, head, dim), lse + row, row_dot + row},
                    {head_rows(k, batch, kv_head, dim), head_rows(v, batch, kv_head, dim),
                     head_rows(d_k, batch, kv_head, dim), head_rows(d_v, batch, kv_head, dim)});
    }
  });
}

void row_dots(const AttentionKernels& kernels, const AttentionShape& shape, Part pairs,
              HeadView<const float> o, HeadView<const float> d_o, float* row_dot) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads;
  for_each_pair(shape, pairs, [&](std::int64_t batch, std::int64_t kv_head) {
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const auto o_rows = head_rows(o, batch, head, dim);
      const auto d_o_rows = head_rows(d_o, batch, head, dim);
      for (std::int64_t t = 0; t < shape.time; ++t)
        row_dot[(batch * shape.heads + head) * shape.time + t] =
            kernels.dot(o_rows.row(t), d_o_rows.row(t), dim);
    }
  });
}

template <const AttentionKernels* (*kKernels)()>
const AttentionFunctions<float>* functions_of() {
  if (kKernels() == nullptr) return nullptr;
  static constexpr AttentionFunctions<float> kFunctions = {
      .forward = [](auto... arguments) { forward(*kKernels(), arguments...); },
      .backward = [](auto... arguments) { backward(*kKernels(), arguments...); },
      .row_dot = [](auto... arguments) { row_dots(*kKernels(), arguments...); }};
  return &kFunctions;
}

}  // namespace

const AttentionFunctions<float>* attention_blocked_f32(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return functions_of<attention_kernels_portable>();
    case Isa::kAvx2:
      return functions_of<attention_kernels_avx2>();
    case Isa::kAvx512:
      return functions_of<attention_kernels_avx512>();
    case Isa::kAvx512Bf16:
      return nullptr;
  }
  __builtin_unreachable();
}

}  // namespace sinew::kernels
