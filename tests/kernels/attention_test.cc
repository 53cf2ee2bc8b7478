// Laws of attention: equal to softmax(q k^T) v computed from the definition, and gradients equal to
// finite differences, over grouped heads, strides and short sequences.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sched/base/philox.h"

namespace sinew::kernels {
namespace {

std::vector<double> random_values(std::size_t count, std::uint32_t purpose) {
  const Philox philox(7, purpose);
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = philox.normal(i);
  return values;
}

// q, k, v fused in one [B, T, (H + 2 KV) D] matrix, as the model stores them.
struct Problem {
  explicit Problem(AttentionShape s) : shape(s) {
    width = (s.heads + 2 * s.kv_heads) * s.head_dim;
    qkv = random_values(static_cast<std::size_t>(s.batch * s.time * width), 1);
    o.resize(static_cast<std::size_t>(s.batch * s.time * s.heads * s.head_dim));
    lse.resize(static_cast<std::size_t>(s.batch * s.heads * s.time));
  }
  HeadView<const double> view(const std::vector<double>& x, std::int64_t offset) const {
    return {x.data() + offset, shape.time * width, width};
  }
  HeadView<double> view(std::vector<double>& x, std::int64_t offset) const {
    return {x.data() + offset, shape.time * width, width};
  }
  template <typename T>
  HeadView<T> output_view(T* data) const {
    return {data, shape.time * shape.heads * shape.head_dim, shape.heads * shape.head_dim};
  }
  std::int64_t k_offset() const { return shape.heads * shape.head_dim; }
  std::int64_t v_offset() const { return (shape.heads + shape.kv_heads) * shape.head_dim; }
  void forward() {
    attention_forward<double>(
        shape, view(std::as_const(qkv), 0), view(std::as_const(qkv), k_offset()),
        view(std::as_const(qkv), v_offset()), output_view(o.data()), lse.data());
  }

  AttentionShape shape;
  std::int64_t width = 0;
  std::vector<double> qkv;
  std::vector<double> o;
  std::vector<double> lse;
};

const AttentionShape kSmallShapes[] = {
    {.batch = 1, .time = 1, .heads = 1, .kv_heads = 1, .head_dim = 1},
    {.batch = 2, .time = 5, .heads = 2, .kv_heads = 2, .head_dim = 3},
    {.batch = 1, .time = 4, .heads = 6, .kv_heads = 2, .head_dim = 4},
    {.batch = 1, .time = 7, .heads = 3, .kv_heads = 1, .head_dim = 5},
};

TEST(AttentionReference, EqualsSoftmaxOfStoredScores) {
  for (const AttentionShape& s : kSmallShapes) {
    Problem p(s);
    p.forward();
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t t = 0; t < s.time; ++t) {
          const std::int64_t kv = h / (s.heads / s.kv_heads);
          std::vector<double> weights;
          double sum = 0;
          for (std::int64_t j = 0; j <= t; ++j) {
            double score = 0;
            for (std::int64_t d = 0; d < s.head_dim; ++d)
              score += p.qkv[(b * s.time + t) * p.width + h * s.head_dim + d] *
                       p.qkv[(b * s.time + j) * p.width + p.k_offset() + kv * s.head_dim + d];
            weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.head_dim))));
            sum += weights.back();
          }
          EXPECT_NEAR(p.lse[(b * s.heads + h) * s.time + t], std::log(sum), 1e-13);
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            double expected = 0;
            for (std::int64_t j = 0; j <= t; ++j)
              expected += weights[j] / sum *
                          p.qkv[(b * s.time + j) * p.width + p.v_offset() + kv * s.head_dim + d];
            EXPECT_NEAR(p.o[((b * s.time + t) * s.heads + h) * s.head_dim + d], expected, 1e-13);
          }
        }
  }
}

// Loss = sum(o * seed). Central differences with step h err by O(h^2) + O(u/h): about 1e-9 at h =
// 1e-5.
TEST(AttentionReference, GradientsEqualFiniteDifferences) {
  for (const AttentionShape& s : kSmallShapes) {
    Problem p(s);
    const std::vector<double> seed = random_values(p.o.size(), 2);
    p.forward();
    std::vector<double> d_qkv(p.qkv.size(), 1e30);
    attention_backward<double>(
        s, p.view(std::as_const(p.qkv), 0), p.view(std::as_const(p.qkv), p.k_offset()),
        p.view(std::as_const(p.qkv), p.v_offset()), p.output_view<const double>(p.o.data()),
        p.lse.data(), p.output_view<const double>(seed.data()), p.view(d_qkv, 0),
        p.view(d_qkv, p.k_offset()), p.view(d_qkv, p.v_offset()));
    const double step = 1e-5;
    for (std::size_t i = 0; i < p.qkv.size(); ++i) {
      const double kept = p.qkv[i];
      double loss[2] = {0, 0};
      for (int side = 0; side < 2; ++side) {
        p.qkv[i] = kept + (side == 0 ? step : -step);
        p.forward();
        for (std::size_t j = 0; j < seed.size(); ++j) loss[side] += seed[j] * p.o[j];
      }
      p.qkv[i] = kept;
      EXPECT_NEAR(d_qkv[i], (loss[0] - loss[1]) / (2 * step), 1e-8) << "element " << i;
    }
  }
}

}  // namespace
}  // namespace sinew::kernels
