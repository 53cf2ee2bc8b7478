#include "kernels/attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {
namespace {

void check_shape(const AttentionShape& shape, KeySpan keys, Threads threads) {
  CHECK_GE(shape.batch, 0);
  CHECK_GE(shape.time, 0);
  CHECK_GE(keys.time, 0);
  CHECK_GE(shape.kv_heads, 1);
  CHECK_GE(shape.head_dim, 1);
  CHECK_EQ(shape.heads % shape.kv_heads, 0);
  CHECK_GE(threads.count, 1);
}

// The pairs are independent, so they may be cut anywhere.
template <typename Body>
void for_each_pair_range(const AttentionShape& shape, Threads threads, Body&& body) {
  parallel_for(threads, shape.batch * shape.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    body(Part{begin, end - begin});
  });
}

// Zeroes heads [first, first + count) of batch element `batch`.
template <typename T>
void clear(HeadView<T> x, std::int64_t batch, std::int64_t time, std::int64_t first,
           std::int64_t count, std::int64_t head_dim) {
  for (std::int64_t t = 0; t < time; ++t) {
    T* row = x.data + batch * x.batch_stride + t * x.time_stride;
    std::fill_n(row + first * head_dim, count * head_dim, T{0});
  }
}

}  // namespace

template <typename T>
void attention_forward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                       HeadView<const T> v, HeadView<T> o, T* lse, Threads threads) {
  const KeySpan keys{.time = shape.time};
  check_shape(shape, keys, threads);
  const auto& version = best<AttentionFunctions<T>>();
  const std::int64_t group = shape.heads / shape.kv_heads;
  for_each_pair_range(shape, threads, [&](Part pairs) {
    for (std::int64_t pair = pairs.offset; pair < pairs.offset + pairs.count; ++pair) {
      clear(o, pair / shape.kv_heads, shape.time, pair % shape.kv_heads * group, group,
            shape.head_dim);
      std::fill_n(lse + pair * group * shape.time, group * shape.time,
                  -std::numeric_limits<T>::infinity());
      version.forward(shape, keys, {pair, 1}, q, k, v, o, lse);
    }
  });
}

template <typename T>
void attention_backward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                        HeadView<const T> v, HeadView<const T> o, const T* lse,
                        HeadView<const T> d_o, HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v,
                        Threads threads) {
  const KeySpan keys{.time = shape.time};
  check_shape(shape, keys, threads);
  const auto& version = best<AttentionFunctions<T>>();
  const std::int64_t group = shape.heads / shape.kv_heads;
  std::vector<T> row_dot(static_cast<std::size_t>(shape.batch * shape.heads * shape.time));
  for_each_pair_range(shape, threads, [&](Part pairs) {
    for (std::int64_t pair = pairs.offset; pair < pairs.offset + pairs.count; ++pair) {
      const std::int64_t batch = pair / shape.kv_heads;
      const std::int64_t kv_head = pair % shape.kv_heads;
      clear(d_q, batch, shape.time, kv_head * group, group, shape.head_dim);
      clear(d_k, batch, shape.time, kv_head, 1, shape.head_dim);
      clear(d_v, batch, shape.time, kv_head, 1, shape.head_dim);
      version.row_dot(shape, {pair, 1}, o, d_o, row_dot.data());
      version.backward(shape, keys, {pair, 1}, q, k, v, lse, row_dot.data(), d_o, d_q, d_k, d_v);
    }
  });
}

template <typename T>
void attention_forward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const T> q,
                               HeadView<const T> k, HeadView<const T> v, HeadView<T> o, T* lse,
                               Threads threads) {
  check_shape(shape, keys, threads);
  const auto& version = best<AttentionFunctions<T>>();
  for_each_pair_range(shape, threads,
                      [&](Part pairs) { version.forward(shape, keys, pairs, q, k, v, o, lse); });
}

template <typename T>
void attention_backward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const T> q,
                                HeadView<const T> k, HeadView<const T> v, const T* lse,
                                const T* row_dot, HeadView<const T> d_o, HeadView<T> d_q,
                                HeadView<T> d_k, HeadView<T> d_v, Threads threads) {
  check_shape(shape, keys, threads);
  const auto& version = best<AttentionFunctions<T>>();
  for_each_pair_range(shape, threads, [&](Part pairs) {
    version.backward(shape, keys, pairs, q, k, v, lse, row_dot, d_o, d_q, d_k, d_v);
  });
}

template <typename T>
void attention_row_dot(const AttentionShape& shape, HeadView<const T> o, HeadView<const T> d_o,
                       T* row_dot, Threads threads) {
  check_shape(shape, {}, threads);
  const auto& version = best<AttentionFunctions<T>>();
  for_each_pair_range(shape, threads,
                      [&](Part pairs) { version.row_dot(shape, pairs, o, d_o, row_dot); });
}

#define SINEW_ATTENTION(T)                                                                         \
  template void attention_forward<T>(const AttentionShape&, HeadView<const T>, HeadView<const T>,  \
                                     HeadView<const T>, HeadView<T>, T*, Threads);                 \
  template void attention_backward<T>(const AttentionShape&, HeadView<const T>, HeadView<const T>, \
                                      HeadView<const T>, HeadView<const T>, const T*,              \
                                      HeadView<const T>, HeadView<T>, HeadView<T>, HeadView<T>,    \
                                      Threads);                                                    \
  template void attention_forward_partial<T>(const AttentionShape&, KeySpan, HeadView<const T>,    \
                                             HeadView<const T>, HeadView<const T>, HeadView<T>,    \
                                             T*, Threads);                                         \
  template void attention_backward_partial<T>(                                                     \
      const AttentionShape&, KeySpan, HeadView<const T>, HeadView<const T>, HeadView<const T>,     \
      const T*, const T*, HeadView<const T>, HeadView<T>, HeadView<T>, HeadView<T>, Threads);      \
  template void attention_row_dot<T>(const AttentionShape&, HeadView<const T>, HeadView<const T>,  \
                                     T*, Threads);
SINEW_ATTENTION(float)
SINEW_ATTENTION(double)
#undef SINEW_ATTENTION

}  // namespace sinew::kernels
