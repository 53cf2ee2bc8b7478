#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sinew::kernels {
namespace {

template <typename T>
T* row(HeadView<T> x, std::int64_t batch, std::int64_t time, std::int64_t head,
       std::int64_t head_dim) {
  return x.data + batch * x.batch_stride + time * x.time_stride + head * head_dim;
}

template <typename T>
Wide<T> dot(const T* x, const T* y, std::int64_t count) {
  Wide<T> sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum += widen(x[d]) * widen(y[d]);
  return sum;
}

// y += factor * x
template <typename T>
void add_scaled(Wide<T> factor, const T* x, Wide<T>* y, std::int64_t count) {
  for (std::int64_t d = 0; d < count; ++d) y[d] += factor * widen(x[d]);
}

template <typename T>
Wide<T> score_scale(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<Wide<T>>(shape.head_dim));
}

// Keys a query sees: the first `count` of them.
std::int64_t keys_seen(KeySpan keys, std::int64_t query) {
  return std::clamp<std::int64_t>(query + keys.diagonal + 1, 0, keys.time);
}

struct Place {
  std::int64_t batch;
  std::int64_t head;
  std::int64_t kv_head;
};

// Calls body(place) for every query head of every pair.
template <typename Body>
void for_each_head(const AttentionShape& shape, Part pairs, Body&& body) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::int64_t pair = pairs.offset; pair < pairs.offset + pairs.count; ++pair) {
    const std::int64_t kv_head = pair % shape.kv_heads;
    for (std::int64_t i = 0; i < group; ++i)
      body(Place{pair / shape.kv_heads, kv_head * group + i, kv_head});
  }
}

// One query. Online softmax: o and sum are kept relative to the largest score so far and rescaled
// whenever a larger one arrives, so that no row of scores is ever stored. An earlier result counts
// as one key of score lse and value o.
template <typename T>
void forward_query(const AttentionShape& shape, KeySpan keys, const Place& at, std::int64_t time,
                   HeadView<const T> q, HeadView<const T> k, HeadView<const T> v,
                   HeadView<Wide<T>> o, Wide<T>* lse) {
  const std::int64_t dim = shape.head_dim;
  const T* query = row(q, at.batch, time, at.head, dim);
  using W = Wide<T>;
  W* output = row(o, at.batch, time, at.head, dim);
  W& log_sum = lse[(at.batch * shape.heads + at.head) * shape.time + time];
  W largest = log_sum;
  W sum = largest > -std::numeric_limits<W>::infinity() ? W{1} : W{0};
  const std::int64_t seen = keys_seen(keys, time);
  if (seen == 0) return;
  for (std::int64_t s = 0; s < seen; ++s) {
    const W score = score_scale<T>(shape) * dot(query, row(k, at.batch, s, at.kv_head, dim), dim);
    if (score > largest) {
      const W shrink = std::exp(largest - score);
      for (std::int64_t d = 0; d < dim; ++d) output[d] *= shrink;
      sum *= shrink;
      largest = score;
    }
    const W weight = std::exp(score - largest);
    sum += weight;
    add_scaled<T>(weight, row(v, at.batch, s, at.kv_head, dim), output, dim);
  }
  for (std::int64_t d = 0; d < dim; ++d) output[d] /= sum;
  log_sum = largest + std::log(sum);
}

// One query's share of every gradient. With P = exp(S - lse) and D = sum(d_o * o), the softmax's
// gradient is dS = P (dP - D), dP = d_o v (Dao et al. 2022, section 3.1): o stands in for the row
// of P that is not stored.
template <typename T>
void backward_query(const AttentionShape& shape, KeySpan keys, const Place& at, std::int64_t time,
                    HeadView<const T> q, HeadView<const T> k, HeadView<const T> v, Wide<T> lse,
                    Wide<T> row_dot, HeadView<const T> d_o, HeadView<Wide<T>> d_q,
                    HeadView<Wide<T>> d_k, HeadView<Wide<T>> d_v) {
  const std::int64_t dim = shape.head_dim;
  const Wide<T> scale = score_scale<T>(shape);
  const T* query = row(q, at.batch, time, at.head, dim);
  const T* d_output = row(d_o, at.batch, time, at.head, dim);
  for (std::int64_t s = 0; s < keys_seen(keys, time); ++s) {
    const T* key = row(k, at.batch, s, at.kv_head, dim);
    const Wide<T> weight = std::exp(scale * dot(query, key, dim) - lse);
    const Wide<T> d_weight = dot(d_output, row(v, at.batch, s, at.kv_head, dim), dim);
    const Wide<T> d_score = weight * (d_weight - row_dot) * scale;
    add_scaled<T>(d_score, key, row(d_q, at.batch, time, at.head, dim), dim);
    add_scaled<T>(d_score, query, row(d_k, at.batch, s, at.kv_head, dim), dim);
    add_scaled<T>(weight, d_output, row(d_v, at.batch, s, at.kv_head, dim), dim);
  }
}

template <typename T>
void forward(const AttentionShape& shape, KeySpan keys, Part pairs, HeadView<const T> q,
             HeadView<const T> k, HeadView<const T> v, HeadView<Wide<T>> o, Wide<T>* lse) {
  for_each_head(shape, pairs, [&](const Place& at) {
    for (std::int64_t time = 0; time < shape.time; ++time)
      forward_query(shape, keys, at, time, q, k, v, o, lse);
  });
}

template <typename T>
void backward(const AttentionShape& shape, KeySpan keys, Part pairs, HeadView<const T> q,
              HeadView<const T> k, HeadView<const T> v, const Wide<T>* lse, const Wide<T>* row_dot,
              HeadView<const T> d_o, HeadView<Wide<T>> d_q, HeadView<Wide<T>> d_k,
              HeadView<Wide<T>> d_v) {
  for_each_head(shape, pairs, [&](const Place& at) {
    for (std::int64_t time = 0; time < shape.time; ++time) {
      const std::int64_t i = (at.batch * shape.heads + at.head) * shape.time + time;
      backward_query(shape, keys, at, time, q, k, v, lse[i], row_dot[i], d_o, d_q, d_k, d_v);
    }
  });
}

template <typename T>
void row_dots(const AttentionShape& shape, Part pairs, HeadView<const T> o, HeadView<const T> d_o,
              Wide<T>* row_dot) {
  for_each_head(shape, pairs, [&](const Place& at) {
    for (std::int64_t time = 0; time < shape.time; ++time)
      row_dot[(at.batch * shape.heads + at.head) * shape.time + time] =
          dot(row(o, at.batch, time, at.head, shape.head_dim),
              row(d_o, at.batch, time, at.head, shape.head_dim), shape.head_dim);
  });
}

template <typename T>
void narrow_row(const Wide<T>* from, T* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = narrow<T>(from[i]);
}

}  // namespace

// One query at a time, keys in increasing order.
template <typename T>
const AttentionFunctions<T>& attention_plain() {
  static constexpr AttentionFunctions<T> kFunctions = {forward<T>, backward<T>, row_dots<T>,
                                                       narrow_row<T>};
  return kFunctions;
}

template const AttentionFunctions<float>& attention_plain<float>();
template const AttentionFunctions<double>& attention_plain<double>();
template const AttentionFunctions<bf16>& attention_plain<bf16>();

}  // namespace sinew::kernels
