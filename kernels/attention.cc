#include "kernels/attention.h"

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>

#include "kernels/accelerator.h"
#include "kernels/registry.h"
#include "kernels/scratch.h"
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

// One pair as a problem of its own: one sequence, one key-value head, `group` query heads.
struct PairProblem {
  PairProblem(const AttentionShape& whole, std::int64_t pair)
      : batch(pair / whole.kv_heads),
        kv_head(pair % whole.kv_heads),
        group(whole.heads / whole.kv_heads),
        shape{1, whole.time, group, 1, whole.head_dim},
        first_row((batch * whole.heads + kv_head * group) * whole.time) {}
  template <typename T>
  [[nodiscard]] HeadView<T> queries(HeadView<T> x) const {
    return from_head(x, kv_head * group);
  }
  template <typename T>
  [[nodiscard]] HeadView<T> keys(HeadView<T> x) const {
    return from_head(x, kv_head);
  }
  template <typename T>
  [[nodiscard]] HeadView<T> from_head(HeadView<T> x, std::int64_t head) const {
    return {x.data + batch * x.batch_stride + head * shape.head_dim, x.batch_stride, x.time_stride};
  }

  std::int64_t batch;
  std::int64_t kv_head;
  std::int64_t group;
  AttentionShape shape;
  std::int64_t first_row;  // in lse and row_dot
};

// A result of the whole form: what the kernels accumulate into, zero at first. It is the result
// itself when that has the type of the sums, else scratch that store() rounds into the result.
template <typename T>
class Result {
 public:
  using W = Wide<T>;
  Result(HeadView<T> target, std::int64_t time, std::int64_t width)
      : target_(target), time_(time), width_(width) {
    if constexpr (std::is_same_v<T, W>) {
      sums_ = target;
    } else {
      scratch_ = allocate_scratch<W>(time * width);
      sums_ = {scratch_.get(), 0, width};
    }
    for (std::int64_t t = 0; t < time; ++t)
      std::fill_n(sums_.data + t * sums_.time_stride, width, W{0});
  }
  [[nodiscard]] HeadView<W> sums() const { return sums_; }
  void store(const AttentionFunctions<T>& version) const {
    if constexpr (std::is_same_v<T, W>) return;
    for (std::int64_t t = 0; t < time_; ++t)
      version.narrow_row(sums_.data + t * sums_.time_stride, target_.data + t * target_.time_stride,
                         width_);
  }

 private:
  HeadView<T> target_;
  std::int64_t time_;
  std::int64_t width_;
  Scratch<W> scratch_;
  HeadView<W> sums_;
};

// The whole forms on one pair.
template <typename T>
void forward_pair(const PairProblem& p, HeadView<const T> q, HeadView<const T> k,
                  HeadView<const T> v, HeadView<T> o, Wide<T>* lse) {
  const auto& version = best<AttentionFunctions<T>>();
  const Result<T> result(p.queries(o), p.shape.time, p.group * p.shape.head_dim);
  Wide<T>* row = lse + p.first_row;
  std::fill_n(row, p.group * p.shape.time, -std::numeric_limits<Wide<T>>::infinity());
  version.forward(p.shape, {.time = p.shape.time}, {0, 1}, p.queries(q), p.keys(k), p.keys(v),
                  result.sums(), row);
  result.store(version);
}

// row_dot: scratch [group, time].
template <typename T>
void backward_pair(const PairProblem& p, HeadView<const T> q, HeadView<const T> k,
                   HeadView<const T> v, HeadView<const T> o, const Wide<T>* lse,
                   HeadView<const T> d_o, HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v,
                   Wide<T>* row_dot) {
  const auto& version = best<AttentionFunctions<T>>();
  const std::int64_t time = p.shape.time;
  const Result<T> query_sums(p.queries(d_q), time, p.group * p.shape.head_dim);
  const Result<T> key_sums(p.keys(d_k), time, p.shape.head_dim);
  const Result<T> value_sums(p.keys(d_v), time, p.shape.head_dim);
  version.row_dot(p.shape, {0, 1}, p.queries(o), p.queries(d_o), row_dot);
  version.backward(p.shape, {.time = time}, {0, 1}, p.queries(q), p.keys(k), p.keys(v),
                   lse + p.first_row, row_dot, p.queries(d_o), query_sums.sums(), key_sums.sums(),
                   value_sums.sums());
  for (const Result<T>* result : {&query_sums, &key_sums, &value_sums}) result->store(version);
}

// The shape of the longest sequence; checks what attention.h says of starts.
AttentionShape longest_sequence(const AttentionShape& shape, std::span<const std::int64_t> starts) {
  CHECK(!starts.empty());
  CHECK_GE(starts.front(), 0);
  AttentionShape longest = shape;
  longest.batch = 1;
  longest.time = 0;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    CHECK_LE(starts[i], starts[i + 1]);
    longest.time = std::max(longest.time, starts[i + 1] - starts[i]);
  }
  return longest;
}

// Calls body(the pair's problem, its sequence's first token) for a range of (sequence, key-value
// head) pairs.
template <typename Body>
void for_each_packed_pair(const AttentionShape& shape, std::span<const std::int64_t> starts,
                          Part pairs, Body&& body) {
  for (std::int64_t pair = pairs.offset; pair < pairs.offset + pairs.count; ++pair) {
    const auto i = static_cast<std::size_t>(pair / shape.kv_heads);
    AttentionShape sequence = shape;
    sequence.batch = 1;
    sequence.time = starts[i + 1] - starts[i];
    body(PairProblem(sequence, pair % shape.kv_heads), starts[i]);
  }
}

template <typename T>
HeadView<T> from_token(HeadView<T> x, std::int64_t token) {
  x.data += token * x.time_stride;
  return x;
}

}  // namespace

template <typename T>
void attention_forward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                       HeadView<const T> v, HeadView<T> o, Wide<T>* lse, Threads threads) {
  check_shape(shape, {.time = shape.time}, threads);
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->attention_forward(shape, q, k, v, o, lse);
  }
  for_each_pair_range(shape, threads, [&](Part pairs) {
    for (std::int64_t pair = pairs.offset; pair < pairs.offset + pairs.count; ++pair)
      forward_pair<T>(PairProblem(shape, pair), q, k, v, o, lse);
  });
}

template <typename T>
void attention_backward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                        HeadView<const T> v, HeadView<const T> o, const Wide<T>* lse,
                        HeadView<const T> d_o, HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v,
                        Threads threads) {
  check_shape(shape, {.time = shape.time}, threads);
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->attention_backward(shape, q, k, v, o, lse, d_o, d_q, d_k, d_v);
  }
  for_each_pair_range(shape, threads, [&](Part pairs) {
    const auto row_dot = allocate_scratch<Wide<T>>(shape.heads / shape.kv_heads * shape.time);
    for (std::int64_t pair = pairs.offset; pair < pairs.offset + pairs.count; ++pair)
      backward_pair<T>(PairProblem(shape, pair), q, k, v, o, lse, d_o, d_q, d_k, d_v,
                       row_dot.get());
  });
}

template <typename T>
void attention_forward_packed(const AttentionShape& shape, std::span<const std::int64_t> starts,
                              HeadView<const T> q, HeadView<const T> k, HeadView<const T> v,
                              HeadView<T> o, Wide<T>* lse, Threads threads) {
  CHECK(threads.accelerator == nullptr);
  check_shape(longest_sequence(shape, starts), {}, threads);
  const auto pair_count = static_cast<std::int64_t>(starts.size() - 1) * shape.kv_heads;
  parallel_for(threads, pair_count, 1, [&](std::int64_t begin, std::int64_t end) {
    for_each_packed_pair(
        shape, starts, {begin, end - begin}, [&](const PairProblem& p, std::int64_t first) {
          forward_pair<T>(p, from_token(q, first), from_token(k, first), from_token(v, first),
                          from_token(o, first), lse + first * shape.heads);
        });
  });
}

template <typename T>
void attention_backward_packed(const AttentionShape& shape, std::span<const std::int64_t> starts,
                               HeadView<const T> q, HeadView<const T> k, HeadView<const T> v,
                               HeadView<const T> o, const Wide<T>* lse, HeadView<const T> d_o,
                               HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v, Threads threads) {
  const AttentionShape longest = longest_sequence(shape, starts);
  CHECK(threads.accelerator == nullptr);
  check_shape(longest, {}, threads);
  const auto pair_count = static_cast<std::int64_t>(starts.size() - 1) * shape.kv_heads;
  parallel_for(threads, pair_count, 1, [&](std::int64_t begin, std::int64_t end) {
    const auto row_dot = allocate_scratch<Wide<T>>(shape.heads / shape.kv_heads * longest.time);
    for_each_packed_pair(
        shape, starts, {begin, end - begin}, [&](const PairProblem& p, std::int64_t first) {
          backward_pair<T>(p, from_token(q, first), from_token(k, first), from_token(v, first),
                           from_token(o, first), lse + first * shape.heads, from_token(d_o, first),
                           from_token(d_q, first), from_token(d_k, first), from_token(d_v, first),
                           row_dot.get());
        });
  });
}

template <typename T>
void attention_forward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const T> q,
                               HeadView<const T> k, HeadView<const T> v, HeadView<Wide<T>> o,
                               Wide<T>* lse, Threads threads) {
  check_shape(shape, keys, threads);
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->attention_forward_partial(shape, keys, q, k, v, o, lse);
  }
  const auto& version = best<AttentionFunctions<T>>();
  for_each_pair_range(shape, threads,
                      [&](Part pairs) { version.forward(shape, keys, pairs, q, k, v, o, lse); });
}

template <typename T>
void attention_backward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const T> q,
                                HeadView<const T> k, HeadView<const T> v, const Wide<T>* lse,
                                const Wide<T>* row_dot, HeadView<const T> d_o,
                                HeadView<Wide<T>> d_q, HeadView<Wide<T>> d_k, HeadView<Wide<T>> d_v,
                                Threads threads) {
  check_shape(shape, keys, threads);
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr) {
      return threads.accelerator->attention_backward_partial(shape, keys, q, k, v, lse, row_dot,
                                                             d_o, d_q, d_k, d_v);
    }
  }
  const auto& version = best<AttentionFunctions<T>>();
  for_each_pair_range(shape, threads, [&](Part pairs) {
    version.backward(shape, keys, pairs, q, k, v, lse, row_dot, d_o, d_q, d_k, d_v);
  });
}

template <typename T>
void attention_row_dot(const AttentionShape& shape, HeadView<const T> o, HeadView<const T> d_o,
                       Wide<T>* row_dot, Threads threads) {
  check_shape(shape, {}, threads);
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->attention_row_dot(shape, o, d_o, row_dot);
  }
  const auto& version = best<AttentionFunctions<T>>();
  for_each_pair_range(shape, threads,
                      [&](Part pairs) { version.row_dot(shape, pairs, o, d_o, row_dot); });
}

#define SINEW_ATTENTION(T)                                                                         \
  template void attention_forward<T>(const AttentionShape&, HeadView<const T>, HeadView<const T>,  \
                                     HeadView<const T>, HeadView<T>, Wide<T>*, Threads);           \
  template void attention_backward<T>(const AttentionShape&, HeadView<const T>, HeadView<const T>, \
                                      HeadView<const T>, HeadView<const T>, const Wide<T>*,        \
                                      HeadView<const T>, HeadView<T>, HeadView<T>, HeadView<T>,    \
                                      Threads);                                                    \
  template void attention_forward_packed<T>(const AttentionShape&, std::span<const std::int64_t>,  \
                                            HeadView<const T>, HeadView<const T>,                  \
                                            HeadView<const T>, HeadView<T>, Wide<T>*, Threads);    \
  template void attention_backward_packed<T>(                                                      \
      const AttentionShape&, std::span<const std::int64_t>, HeadView<const T>, HeadView<const T>,  \
      HeadView<const T>, HeadView<const T>, const Wide<T>*, HeadView<const T>, HeadView<T>,        \
      HeadView<T>, HeadView<T>, Threads);                                                          \
  template void attention_forward_partial<T>(const AttentionShape&, KeySpan, HeadView<const T>,    \
                                             HeadView<const T>, HeadView<const T>,                 \
                                             HeadView<Wide<T>>, Wide<T>*, Threads);                \
  template void attention_backward_partial<T>(                                                     \
      const AttentionShape&, KeySpan, HeadView<const T>, HeadView<const T>, HeadView<const T>,     \
      const Wide<T>*, const Wide<T>*, HeadView<const T>, HeadView<Wide<T>>, HeadView<Wide<T>>,     \
      HeadView<Wide<T>>, Threads);                                                                 \
  template void attention_row_dot<T>(const AttentionShape&, HeadView<const T>, HeadView<const T>,  \
                                     Wide<T>*, Threads);
SINEW_ATTENTION(float)
SINEW_ATTENTION(double)
SINEW_ATTENTION(bf16)
#undef SINEW_ATTENTION

}  // namespace sinew::kernels
