// Attention on the device against the CPU's in f64: whole and partial, grouped heads, odd times and
// widths, a fused QKV matrix, every span of keys that ring attention meets.
#include "kernels/attention_gpu.h"

#include "tests/gpu/device_array.h"
#include "tests/gpu/scenarios.h"

namespace sinew {
namespace {

using namespace testing;
using kernels::AttentionShape;
using kernels::HeadView;
using kernels::KeySpan;

constexpr float kMinusInfinity = -INFINITY;

// Weights (and their gradients) are rounded to bf16, then the result: each rounding costs at most
// 2^-8 of what is rounded, and errors of weights add up no worse than the weights do. Gradients
// pass two such products and row_dot's rounded o.
constexpr double kForwardError = 2 * kRoundingError<bf16>;
constexpr double kBackwardError = 4 * kRoundingError<bf16>;

// One fused matrix [B, T, H + 2 KV, D]; keys may have a time of their own.
struct Problem {
  AttentionShape shape;
  std::int64_t key_time;
  std::vector<bf16> q, k, v, d_o;

  Problem(const AttentionShape& s, std::int64_t keys) : shape(s), key_time(keys) {
    const auto values = [&](std::int64_t time, std::int64_t heads, std::uint32_t seed) {
      return from_floats<bf16>(
          normal_values(static_cast<std::size_t>(s.batch * time * heads * s.head_dim), seed));
    };
    q = values(s.time, s.heads, 1);
    k = values(keys, s.kv_heads, 2);
    v = values(keys, s.kv_heads, 3);
    d_o = values(s.time, s.heads, 4);
  }

  [[nodiscard]] std::size_t queries() const { return q.size(); }
  [[nodiscard]] std::size_t rows() const {
    return static_cast<std::size_t>(shape.batch * shape.heads * shape.time);
  }
  template <typename T>
  [[nodiscard]] HeadView<T> query_view(T* data) const {
    const std::int64_t row = shape.heads * shape.head_dim;
    return {data, shape.time * row, row};
  }
  template <typename T>
  [[nodiscard]] HeadView<T> key_view(T* data) const {
    const std::int64_t row = shape.kv_heads * shape.head_dim;
    return {data, key_time * row, row};
  }
};

// Results in f64 over a list of key spans, accumulated.
struct Reference {
  std::vector<double> o, lse, d_q, d_k, d_v;

  Reference(const Problem& p, KeySpan keys)
      : o(p.queries()),
        lse(p.rows(), -INFINITY),
        d_q(p.queries()),
        d_k(p.k.size()),
        d_v(p.v.size()) {
    const std::vector<double> q = as_doubles(p.q), k = as_doubles(p.k), v = as_doubles(p.v),
                              d_o = as_doubles(p.d_o);
    std::vector<double> dot(p.rows());
    const auto qv = p.query_view<const double>(q.data());
    const auto kv = p.key_view<const double>(k.data());
    const auto vv = p.key_view<const double>(v.data());
    const auto gv = p.query_view<const double>(d_o.data());
    kernels::attention_forward_partial<double>(p.shape, keys, qv, kv, vv, p.query_view(o.data()),
                                               lse.data());
    kernels::attention_row_dot<double>(p.shape, p.query_view<const double>(o.data()), gv,
                                       dot.data());
    kernels::attention_backward_partial<double>(p.shape, keys, qv, kv, vv, lse.data(), dot.data(),
                                                gv, p.query_view(d_q.data()),
                                                p.key_view(d_k.data()), p.key_view(d_v.data()));
  }
};

struct OnDevice {
  DeviceArray<bf16> q, k, v, d_o;
  OnDevice(const Problem& p, device::Stream& stream)
      : q(p.q, stream), k(p.k, stream), v(p.v, stream), d_o(p.d_o, stream) {}
};

void expect_close(const std::vector<float>& actual, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(static_cast<double>(actual[i]), expected[i]);
    } else {
      // lse: scores of f32 products of bf16, |score| < 10.
      EXPECT_NEAR(static_cast<double>(actual[i]), expected[i], 1e-5);
    }
  }
}

// The whole form; true when everything is within its bound.
bool whole_is_right(const Problem& p, device::Stream& stream) {
  const Reference expected(p, {p.shape.time, 0});
  const OnDevice in(p, stream);
  const DeviceArray<bf16> o(p.queries()), d_q(p.queries()), d_k(p.k.size()), d_v(p.v.size());
  const DeviceArray<float> lse(p.rows()), dot(p.rows());
  const auto q = p.query_view<const bf16>(in.q.data());
  const auto k = p.key_view<const bf16>(in.k.data());
  const auto v = p.key_view<const bf16>(in.v.data());
  const auto d_o = p.query_view<const bf16>(in.d_o.data());
  kernels::attention_forward(p.shape, q, k, v, p.query_view(o.data()), lse.data(), stream);
  kernels::attention_backward(p.shape, q, k, v, p.query_view<const bf16>(o.data()), lse.data(), d_o,
                              p.query_view(d_q.data()), p.key_view(d_k.data()),
                              p.key_view(d_v.data()), dot.data(), stream);
  return relative_error(o.download(stream), expected.o) < kForwardError &&
         relative_error(lse.download(stream), expected.lse) < 1e-5 &&
         relative_error(d_q.download(stream), expected.d_q) < kBackwardError &&
         relative_error(d_k.download(stream), expected.d_k) < kBackwardError &&
         relative_error(d_v.download(stream), expected.d_v) < kBackwardError;
}

TEST(GpuAttention, WholeFormEqualsTheCpu) {
  device::Stream stream;
  for (const AttentionShape& shape : {AttentionShape{1, 1, 1, 1, 8},
                                      {2, 70, 2, 1, 64},
                                      {1, 129, 3, 3, 40},
                                      {1, 100, 2, 2, 128}}) {
    EXPECT_TRUE(whole_is_right(Problem(shape, shape.time), stream))
        << "time " << shape.time << ", head_dim " << shape.head_dim;
  }
}

TEST(GpuAttention, SchedulesDoNotMatter) {
  const Problem p({1, 66, 2, 1, 16}, 66);
  for_each_schedule([&](device::Stream& stream) { EXPECT_TRUE(whole_is_right(p, stream)); }, 1);
}

// Spans below, on and above the diagonal, and keys that nobody sees.
TEST(GpuAttention, PartialFormEqualsTheCpu) {
  device::Stream stream;
  for (const KeySpan keys :
       {KeySpan{50, 50}, KeySpan{50, 0}, KeySpan{50, 17}, KeySpan{50, -20}, KeySpan{50, -90}}) {
    SCOPED_TRACE("diagonal " + std::to_string(keys.diagonal));
    const Problem p({1, 90, 2, 1, 24}, keys.time);
    const Reference expected(p, keys);
    const OnDevice in(p, stream);
    const std::vector<float> no_queries(p.queries()), no_keys(p.k.size());
    const DeviceArray<float> o(no_queries, stream), d_q(no_queries, stream), d_k(no_keys, stream),
        d_v(no_keys, stream), dot(p.rows()),
        lse(std::vector<float>(p.rows(), kMinusInfinity), stream);
    const auto q = p.query_view<const bf16>(in.q.data());
    const auto k = p.key_view<const bf16>(in.k.data());
    const auto v = p.key_view<const bf16>(in.v.data());
    const auto d_o = p.query_view<const bf16>(in.d_o.data());
    kernels::attention_forward_partial(p.shape, keys, q, k, v, p.query_view(o.data()), lse.data(),
                                       stream);
    kernels::attention_row_dot<float>(p.shape, p.query_view<const float>(o.data()), d_o, dot.data(),
                                      stream);
    kernels::attention_backward_partial(p.shape, keys, q, k, v, lse.data(), dot.data(), d_o,
                                        p.query_view(d_q.data()), p.key_view(d_k.data()),
                                        p.key_view(d_v.data()), stream);
    EXPECT_LT(relative_error(o.download(stream), expected.o), kForwardError);
    expect_close(lse.download(stream), expected.lse);
    EXPECT_LT(relative_error(d_q.download(stream), expected.d_q), kBackwardError);
    EXPECT_LT(relative_error(d_k.download(stream), expected.d_k), kBackwardError);
    EXPECT_LT(relative_error(d_v.download(stream), expected.d_v), kBackwardError);
  }
}

// Keys in two blocks, in either order, are the keys in one.
TEST(GpuAttention, PartsMergeInAnyOrder) {
  device::Stream stream;
  constexpr std::int64_t kTime = 80;
  constexpr std::int64_t kHalf = 40;
  const Problem p({1, kTime, 1, 1, 32}, kTime);
  const Reference expected(p, {kTime, 0});
  const OnDevice in(p, stream);
  for (const int first : {0, 1}) {
    const DeviceArray<float> o(std::vector<float>(p.queries()), stream),
        lse(std::vector<float>(p.rows(), kMinusInfinity), stream);
    for (const int turn : {0, 1}) {
      const std::int64_t begin = (first + turn) % 2 * kHalf;
      const std::int64_t skip = begin * p.shape.head_dim;
      kernels::attention_forward_partial(
          p.shape, {kHalf, -begin}, p.query_view<const bf16>(in.q.data()),
          p.key_view<const bf16>(in.k.data() + skip), p.key_view<const bf16>(in.v.data() + skip),
          p.query_view(o.data()), lse.data(), stream);
    }
    EXPECT_LT(relative_error(o.download(stream), expected.o), kForwardError);
    expect_close(lse.download(stream), expected.lse);
  }
}

}  // namespace

bool testing::attention_scenario(device::Stream& stream) {
  // Three tiles of keys and of queries: every stage is filled again.
  if (!whole_is_right(Problem({1, 140, 1, 1, 8}, 140), stream)) return false;
  // Merging twice: the second call reads what the first has left.
  const Problem p({1, 32, 1, 1, 8}, 32);
  const OnDevice in(p, stream);
  const DeviceArray<float> o(std::vector<float>(p.queries()), stream),
      lse(std::vector<float>(p.rows(), kMinusInfinity), stream);
  for (int turn = 0; turn < 2; ++turn) {
    kernels::attention_forward_partial(p.shape, {32, 0}, p.query_view<const bf16>(in.q.data()),
                                       p.key_view<const bf16>(in.k.data()),
                                       p.key_view<const bf16>(in.v.data()), p.query_view(o.data()),
                                       lse.data(), stream);
  }
  const Reference expected(p, {32, 0});
  return relative_error(o.download(stream), expected.o) < kForwardError;
}

}  // namespace sinew
