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
T dot(const T* x, const T* y, std::int64_t count) {
  T sum = 0;
  for (std::int64_t d = 0; d < count; ++d) sum += x[d] * y[d];
  return sum;
}

// y += factor * x
template <typename T>
void add_scaled(T factor, const T* x, T* y, std::int64_t count) {
  for (std::int64_t d = 0; d < count; ++d) y[d] += factor * x[d];
}

template <typename T>
T score_scale(const AttentionShape& shape) {
  return T{1} / std::sqrt(static_cast<T>(shape.head_dim));
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
                   HeadView<const T> q, HeadView<const T> k, HeadView<const T> v, HeadView<T> o,
                   T* lse) {
  const std::int64_t dim = shape.head_dim;
  const T* query = row(q, at.batch, time, at.head, dim);
  T* output = row(o, at.batch, time, at.head, dim);
  T& log_sum = lse[(at.batch * shape.heads + at.head) * shape.time + time];
  T largest = log_sum;
  T sum = largest > -std::numeric_limits<T>::infinity() ? T{1} : T{0};
  const std::int64_t seen = keys_seen(keys, time);
  if (seen == 0) return;
  for (std::int64_t s = 0; s < seen; ++s) {
    const T score = score_scale<T>(shape) * dot(query, row(k, at.batch, s, at.kv_head, dim), dim);
    if (score > largest) {
      const T shrink = std::exp(largest - score);
      for (std::int64_t d = 0; d < dim; ++d) output[d] *= shrink;
      sum *= shrink;
      largest = score;
    }
    const T weight = std::exp(score - largest);
    sum += weight;
    add_scaled(weight, row(v, at.batch, s, at.kv_head, dim), output, dim);
  }
  for (std::int64_t d = 0; d < dim; ++d) output[d] /= sum;
  log_sum = largest + std::log(sum);
}

// One query's share of every gradient. With P = exp(S - lse) and D = sum(d_o * o), the softmax's
// gradient is dS = P (dP - D), dP = d_o v (Dao et al. 2022, section 3.1): o stands in for the row
// of P that is not stored.
template <typename T>
void backward_query(const AttentionShape& shape, KeySpan keys, const Place& at, std::int64_t time,
                    HeadView<const T> q, HeadView<const T> k, HeadView<const T> v, T lse, T row_dot,
                    HeadView<const T> d_o, HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v) {
  const std::int64_t dim = shape.head_dim;
  const T scale = score_scale<T>(shape);
  const T* query = row(q, at.batch, time, at.head, dim);
  const T* d_output = row(d_o, at.batch, time, at.head, dim);
  for (std::int64_t s = 0; s < keys_seen(keys, time); ++s) {
    const T* key = row(k, at.batch, s, at.kv_head, dim);
    const T weight = std::exp(scale * dot(query, key, dim) - lse);
    const T d_weight = dot(d_output, row(v, at.batch, s, at.kv_head, dim), dim);
    const T d_score = weight * (d_weight - row_dot) * scale;
    add_scaled(d_score, key, row(d_q, at.batch, time, at.head, dim), dim);
    add_scaled(d_score, query, row(d_k, at.batch, s, at.kv_head, dim), dim);
    add_scaled(weight, d_output, row(d_v, at.batch, s, at.kv_head, dim), dim);
  }
}

template <typename T>
void forward(const AttentionShape& shape, KeySpan keys, Part pairs, HeadView<const T> q,
             HeadView<const T> k, HeadView<const T> v, HeadView<T> o, T* lse) {
  for_each_head(shape, pairs, [&](const Place& at) {
    for (std::int64_t time = 0; time < shape.time; ++time)
      forward_query(shape, keys, at, time, q, k, v, o, lse);
  });
}

template <typename T>
void backward(const AttentionShape& shape, KeySpan keys, Part pairs, HeadView<const T> q,
              HeadView<const T> k, HeadView<const T> v, const T* lse, const T* row_dot,
              HeadView<const T> d_o, HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v) {
  for_each_head(shape, pairs, [&](const Place& at) {
    for (std::int64_t time = 0; time < shape.time; ++time) {
      const std::int64_t i = (at.batch * shape.heads + at.head) * shape.time + time;
      backward_query(shape, keys, at, time, q, k, v, lse[i], row_dot[i], d_o, d_q, d_k, d_v);
    }
  });
}

template <typename T>
void row_dots(const AttentionShape& shape, Part pairs, HeadView<const T> o, HeadView<const T> d_o,
              T* row_dot) {
  for_each_head(shape, pairs, [&](const Place& at) {
    for (std::int64_t time = 0; time < shape.time; ++time)
      row_dot[(at.batch * shape.heads + at.head) * shape.time + time] =
          dot(row(o, at.batch, time, at.head, shape.head_dim),
              row(d_o, at.batch, time, at.head, shape.head_dim), shape.head_dim);
  });
}

}  // namespace

// One query at a time, keys in increasing order.
template <typename T>
const AttentionFunctions<T>& attention_plain() {
  static constexpr AttentionFunctions<T> kFunctions = {forward<T>, backward<T>, row_dots<T>};
  return kFunctions;
}

template const AttentionFunctions<float>& attention_plain<float>();
template const AttentionFunctions<double>& attention_plain<double>();

}  // namespace sinew::kernels
