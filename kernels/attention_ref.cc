#include "kernels/attention_ref.h"

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

// One query against keys 0..time. Online softmax: o and sum are kept relative to the largest score
// so far and rescaled whenever a larger one arrives, so that no row of scores is ever stored.
template <typename T>
void forward_query(const AttentionShape& shape, std::int64_t batch, std::int64_t head,
                   std::int64_t time, HeadView<const T> q, HeadView<const T> k, HeadView<const T> v,
                   HeadView<T> o, T* lse) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const T* query = row(q, batch, time, head, dim);
  T* output = row(o, batch, time, head, dim);
  T largest = -std::numeric_limits<T>::infinity();
  T sum = 0;
  std::fill(output, output + dim, T{0});
  for (std::int64_t s = 0; s <= time; ++s) {
    const T score = score_scale<T>(shape) * dot(query, row(k, batch, s, kv_head, dim), dim);
    if (score > largest) {
      const T shrink = std::exp(largest - score);
      for (std::int64_t d = 0; d < dim; ++d) output[d] *= shrink;
      sum *= shrink;
      largest = score;
    }
    const T weight = std::exp(score - largest);
    sum += weight;
    add_scaled(weight, row(v, batch, s, kv_head, dim), output, dim);
  }
  for (std::int64_t d = 0; d < dim; ++d) output[d] /= sum;
  lse[(batch * shape.heads + head) * shape.time + time] = largest + std::log(sum);
}

// One query's share of every gradient. With P = exp(S - lse) and D = sum(d_o * o), the softmax's
// gradient is dS = P (dP - D), dP = d_o v (Dao et al. 2022, section 3.1): o stands in for the row
// of P that is not stored.
template <typename T>
void backward_query(const AttentionShape& shape, std::int64_t batch, std::int64_t head,
                    std::int64_t time, HeadView<const T> q, HeadView<const T> k,
                    HeadView<const T> v, HeadView<const T> o, T lse, HeadView<const T> d_o,
                    HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const T scale = score_scale<T>(shape);
  const T* query = row(q, batch, time, head, dim);
  const T* d_output = row(d_o, batch, time, head, dim);
  const T row_sum = dot(d_output, row(o, batch, time, head, dim), dim);
  T* d_query = row(d_q, batch, time, head, dim);
  std::fill(d_query, d_query + dim, T{0});
  for (std::int64_t s = 0; s <= time; ++s) {
    const T* key = row(k, batch, s, kv_head, dim);
    const T weight = std::exp(scale * dot(query, key, dim) - lse);
    const T d_weight = dot(d_output, row(v, batch, s, kv_head, dim), dim);
    const T d_score = weight * (d_weight - row_sum) * scale;
    add_scaled(d_score, key, d_query, dim);
    add_scaled(d_score, query, row(d_k, batch, s, kv_head, dim), dim);
    add_scaled(weight, d_output, row(d_v, batch, s, kv_head, dim), dim);
  }
}

}  // namespace

template <typename T>
void attention_forward_reference(const AttentionShape& shape, HeadView<const T> q,
                                 HeadView<const T> k, HeadView<const T> v, HeadView<T> o, T* lse) {
  for (std::int64_t batch = 0; batch < shape.batch; ++batch)
    for (std::int64_t head = 0; head < shape.heads; ++head)
      for (std::int64_t time = 0; time < shape.time; ++time)
        forward_query(shape, batch, head, time, q, k, v, o, lse);
}

template <typename T>
void attention_backward_reference(const AttentionShape& shape, HeadView<const T> q,
                                  HeadView<const T> k, HeadView<const T> v, HeadView<const T> o,
                                  const T* lse, HeadView<const T> d_o, HeadView<T> d_q,
                                  HeadView<T> d_k, HeadView<T> d_v) {
  const std::int64_t dim = shape.head_dim;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t time = 0; time < shape.time; ++time) {
      for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
        std::fill_n(row(d_k, batch, time, head, dim), dim, T{0});
        std::fill_n(row(d_v, batch, time, head, dim), dim, T{0});
      }
    }
    for (std::int64_t head = 0; head < shape.heads; ++head)
      for (std::int64_t time = 0; time < shape.time; ++time)
        backward_query(shape, batch, head, time, q, k, v, o,
                       lse[(batch * shape.heads + head) * shape.time + time], d_o, d_q, d_k, d_v);
  }
}

template void attention_forward_reference<float>(const AttentionShape&, HeadView<const float>,
                                                 HeadView<const float>, HeadView<const float>,
                                                 HeadView<float>, float*);
template void attention_forward_reference<double>(const AttentionShape&, HeadView<const double>,
                                                  HeadView<const double>, HeadView<const double>,
                                                  HeadView<double>, double*);
template void attention_backward_reference<float>(const AttentionShape&, HeadView<const float>,
                                                  HeadView<const float>, HeadView<const float>,
                                                  HeadView<const float>, const float*,
                                                  HeadView<const float>, HeadView<float>,
                                                  HeadView<float>, HeadView<float>);
template void attention_backward_reference<double>(const AttentionShape&, HeadView<const double>,
                                                   HeadView<const double>, HeadView<const double>,
                                                   HeadView<const double>, const double*,
                                                   HeadView<const double>, HeadView<double>,
                                                   HeadView<double>, HeadView<double>);

}  // namespace sinew::kernels
