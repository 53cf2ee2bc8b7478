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
#include "kernels/attention_block.h"
#include "kernels/attention_tile.h"
#include "kernels/scratch.h"

namespace sinew::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2 = 0.6931471805599453;

// The forward pass of one key-value head and the query heads that share it.
template <typename T>
class ForwardPair {
 public:
  ForwardPair(const AttentionKernels<T>& kernels, const AttentionShape& shape, KeySpan span)
      : layout_(kernels, shape.head_dim),
        shape_(shape),
        span_(span),
        score_scale_(static_cast<float>(kLog2E / std::sqrt(static_cast<double>(shape.head_dim)))),
        scores_(layout_, false),
        keys_(allocate_scratch<float>(span.time * layout_.dim_words)),
        values_(allocate_scratch<float>(layout_.words(span.time) * layout_.padded_dim)),
        queries_(allocate_scratch<float>(kScoreQueries * layout_.dim_words)),
        outputs_(allocate_scratch<float>(kScoreQueries * layout_.padded_dim)) {}

  void pack_keys(HeadRows<const T> k, HeadRows<const T> v) {
    for (std::int64_t j = 0; j < block_count(span_.time, layout_.key_block); ++j) {
      const Part keys = block_at(span_.time, layout_.key_block, j);
      layout_.pack_rows(k, keys, packed_keys(keys));
      layout_.pack_columns(v, keys, packed_values(keys));
    }
  }

  void run_head(HeadRows<const T> q, HeadRows<float> o, float* lse) {
    for (std::int64_t i = 0; i < block_count(shape_.time, kScoreQueries); ++i)
      run_queries(block_at(shape_.time, kScoreQueries, i), q, o, lse);
  }

 private:
  void run_queries(Part queries, HeadRows<const T> q, HeadRows<float> o, float* lse) {
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
    float* scores = scores_.scores.get();
    for (std::int64_t first = 0; first < at.queries.count; first += width) {
      const std::int64_t seen = at.keys_seen(std::min(first + width, at.queries.count));
      score_panel(layout_, at, first, score_scale_, packed_keys(at.keys), queries_.get(), scores);
      layout_.kernels.softmax({scores + first, scores_.words(first), seen, first + at.diagonal},
                              largest_ + first, sum_ + first, shrink_ + first);
      scores_.clear_unseen(layout_, first, seen, limit);
    }
    for (std::int64_t i = 0; i < at.queries.count; ++i)
      if (shrink_[i] != 1)
        layout_.kernels.scale_row(shrink_[i], output(i), output(i), layout_.head_dim);
    add_over_keys(layout_, at, 1, scores_, packed_values(at.keys),
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
  [[nodiscard]] float* packed_keys(Part keys) {
    return keys_.get() + keys.offset * layout_.dim_words;
  }
  [[nodiscard]] float* packed_values(Part keys) {
    return values_.get() + layout_.words(keys.offset) * layout_.padded_dim;
  }

  Layout<T> layout_;
  AttentionShape shape_;
  KeySpan span_;
  float score_scale_;
  Scores<T> scores_;
  Scratch<float> keys_;
  Scratch<float> values_;
  Scratch<float> queries_;
  Scratch<float> outputs_;
  alignas(64) float largest_[kScoreQueries];
  alignas(64) float sum_[kScoreQueries];
  alignas(64) float shrink_[kScoreQueries];
};

// The backward pass of one key-value head and the query heads that share it.
template <typename T>
class BackwardPair {
 public:
  BackwardPair(const AttentionKernels<T>& kernels, const AttentionShape& shape, KeySpan span)
      : layout_(kernels, shape.head_dim),
        shape_(shape),
        span_(span),
        scale_(1 / std::sqrt(static_cast<float>(shape.head_dim))),
        weights_(layout_, true),
        d_scores_(layout_, true) {
    const std::int64_t block = layout_.key_block;
    for (Scratch<float>* x : {&keys_, &values_})
      *x = allocate_scratch<float>(block * layout_.dim_words);
    key_columns_ = allocate_scratch<float>(layout_.words(block) * layout_.padded_dim);
    const std::int64_t time = round_up(shape.time, kScoreQueries);
    for (Scratch<float>* x : {&queries_, &d_outputs_})
      *x = allocate_scratch<float>(time * layout_.dim_words);
    for (Scratch<float>* x : {&query_columns_, &d_output_columns_})
      *x = allocate_scratch<float>(layout_.words(time) * layout_.padded_dim);
    for (Scratch<float>* x : {&lse2_, &row_dot_}) *x = allocate_scratch<float>(time);
  }

  struct Head {
    HeadRows<const T> q;
    HeadRows<const T> d_o;
    HeadRows<float> d_q;
    const float* lse;
    const float* row_dot;
  };
  struct KeyValue {
    HeadRows<const T> k;
    HeadRows<const T> v;
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
      layout_.pack_transposed(head.q, queries, rows_of(queries_, queries));
      layout_.pack_transposed(head.d_o, queries, rows_of(d_outputs_, queries));
      layout_.pack_columns(head.q, queries, columns_of(query_columns_, queries));
      layout_.pack_columns(head.d_o, queries, columns_of(d_output_columns_, queries));
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
    float* scores = weights_.scores.get();
    float* d_weights = d_scores_.scores.get();
    for (std::int64_t first = 0; first < at.queries.count; first += width) {
      const std::int64_t seen = at.keys_seen(std::min(first + width, at.queries.count));
      const std::int64_t row = at.queries.offset + first;
      score_panel(layout_, at, first, static_cast<float>(kLog2E) * scale_, keys_.get(),
                  rows_of(queries_, at.queries), scores);
      score_panel(layout_, at, first, 1, values_.get(), rows_of(d_outputs_, at.queries), d_weights);
      // The product over keys reads d_scores alone: weights need no words of two keys.
      layout_.kernels.softmax_backward(
          {scores + first, {nullptr, weights_.words(first).across}, seen, first + at.diagonal},
          d_weights + first, d_scores_.words(first), lse2_.get() + row, row_dot_.get() + row);
      weights_.clear_unseen(layout_, first, seen, limit);
      d_scores_.clear_unseen(layout_, first, seen, limit);
    }
    add_over_queries(layout_, at, 1, weights_, columns_of(d_output_columns_, at.queries),
                     {pair.d_v.row(at.keys.offset), pair.d_v.stride});
    add_over_queries(layout_, at, scale_, d_scores_, columns_of(query_columns_, at.queries),
                     {pair.d_k.row(at.keys.offset), pair.d_k.stride});
    add_over_keys(layout_, at, scale_, d_scores_, key_columns_.get(),
                  {head.d_q.row(at.queries.offset), head.d_q.stride});
  }

  // Where the block of queries lies in a packed matrix of all of them.
  [[nodiscard]] float* rows_of(const Scratch<float>& packed, Part queries) const {
    return packed.get() + queries.offset * layout_.dim_words;
  }
  [[nodiscard]] float* columns_of(const Scratch<float>& packed, Part queries) const {
    return packed.get() + layout_.words(queries.offset) * layout_.padded_dim;
  }

  Layout<T> layout_;
  AttentionShape shape_;
  KeySpan span_;
  float scale_;
  Scores<T> weights_;
  Scores<T> d_scores_;
  Scratch<float> keys_;
  Scratch<float> values_;
  Scratch<float> key_columns_;
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

template <typename T>
void forward(const AttentionKernels<T>& kernels, const AttentionShape& shape, KeySpan span,
             Part pairs, HeadView<const T> q, HeadView<const T> k, HeadView<const T> v,
             HeadView<float> o, float* lse) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads;
  ForwardPair<T> pair(kernels, shape, span);
  for_each_pair(shape, pairs, [&](std::int64_t batch, std::int64_t kv_head) {
    pair.pack_keys(head_rows(k, batch, kv_head, dim), head_rows(v, batch, kv_head, dim));
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      pair.run_head(head_rows(q, batch, head, dim), head_rows(o, batch, head, dim),
                    lse + (batch * shape.heads + head) * shape.time);
  });
}

template <typename T>
void backward(const AttentionKernels<T>& kernels, const AttentionShape& shape, KeySpan span,
              Part pairs, HeadView<const T> q, HeadView<const T> k, HeadView<const T> v,
              const float* lse, const float* row_dot, HeadView<const T> d_o, HeadView<float> d_q,
              HeadView<float> d_k, HeadView<float> d_v) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads;
  BackwardPair<T> pair(kernels, shape, span);
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

template <typename T>
void row_dots(const AttentionKernels<T>& kernels, const AttentionShape& shape, Part pairs,
              HeadView<const T> o, HeadView<const T> d_o, float* row_dot) {
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

template <typename T, const AttentionKernels<T>* (*kKernels)()>
const AttentionFunctions<T>* functions_of() {
  if (kKernels() == nullptr) return nullptr;
  static const AttentionFunctions<T> functions = {
      .forward = [](auto... arguments) { forward<T>(*kKernels(), arguments...); },
      .backward = [](auto... arguments) { backward<T>(*kKernels(), arguments...); },
      .row_dot = [](auto... arguments) { row_dots<T>(*kKernels(), arguments...); },
      .narrow_row = kKernels()->narrow_row};
  return &functions;
}

}  // namespace

template <>
const AttentionFunctions<float>* attention_fast<float>(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return functions_of<float, attention_kernels_portable>();
    case Isa::kAvx2:
      return functions_of<float, attention_kernels_avx2>();
    case Isa::kAvx512:
      return functions_of<float, attention_kernels_avx512>();
    case Isa::kAvx512Bf16:
      return nullptr;
  }
  __builtin_unreachable();
}

template <>
const AttentionFunctions<bf16>* attention_fast<bf16>(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return functions_of<bf16, attention_bf16_kernels_portable>();
    case Isa::kAvx2:
      return functions_of<bf16, attention_bf16_kernels_avx2>();
    case Isa::kAvx512:
      return functions_of<bf16, attention_bf16_kernels_avx512>();
    case Isa::kAvx512Bf16:
      return functions_of<bf16, attention_bf16_kernels_avx512bf16>();
  }
  __builtin_unreachable();
}

}  // namespace sinew::kernels
