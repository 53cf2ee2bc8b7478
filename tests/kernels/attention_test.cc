// Laws of attention, for every version this processor runs: within a derived bound of softmax(q
// k^T) v and its gradients computed from the definition in f64, over grouped heads, odd sizes,
// strides and partial spans of keys; the same bits for every thread count; nothing written outside
// the results. The f64 version, which everything else is trusted by, also meets finite differences.
#include "kernels/attention.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/attention_tile.h"
#include "kernels/element.h"
#include "kernels/registry.h"
#include "tests/kernels/guarded.h"
#include "tests/sanitized.h"

namespace sinew::kernels {
namespace {

constexpr std::uint64_t kSeed = 20240703;
constexpr double kUnit = 0x1p-24;
// Roundoff of weights and their gradients where they are multiplied as bf16.
constexpr double kWeightUnit = 0x1p-8;
// A weight below this, or a product or sum of bf16 dot products, may become 0.
constexpr double kTiny = 0x1p-126;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
using Matrix = std::vector<T>;

template <typename T>
double exact(T x) {
  return static_cast<double>(widen(x));
}

struct Case {
  AttentionShape shape;
  KeySpan keys;
};

std::string describe(const Case& c) {
  const AttentionShape& s = c.shape;
  return "B " + std::to_string(s.batch) + " T " + std::to_string(s.time) + " H " +
         std::to_string(s.heads) + " KV " + std::to_string(s.kv_heads) + " D " +
         std::to_string(s.head_dim) + " keys " + std::to_string(c.keys.time) + " diagonal " +
         std::to_string(c.keys.diagonal);
}

Case causal(std::int64_t batch, std::int64_t time, std::int64_t heads, std::int64_t kv_heads,
            std::int64_t head_dim) {
  return {{batch, time, heads, kv_heads, head_dim}, {time, 0}};
}

// Sizes on both sides of every block, tile and vector length, and spans above, on, below and far
// from the diagonal.
std::vector<Case> cases() {
  return {causal(1, 1, 1, 1, 1),           causal(2, 5, 2, 2, 3),
          causal(1, 33, 4, 2, 64),         causal(1, 129, 3, 1, 40),
          causal(1, 150, 1, 1, 128),       causal(2, 64, 2, 1, 32),
          causal(1, 17, 1, 1, 80),         causal(1, 257, 1, 1, 16),
          causal(1, 113, 2, 2, 64),        {{1, 50, 2, 1, 20}, {70, -20}},
          {{1, 50, 1, 1, 33}, {70, 19}},   {{1, 50, 1, 1, 32}, {70, 200}},
          {{1, 40, 1, 1, 8}, {130, -40}},  {{1, 200, 1, 1, 16}, {30, -150}},
          {{1, 140, 1, 1, 16}, {140, -1}}, {{1, 0, 1, 1, 16}, {30, 0}},
          {{1, 30, 1, 1, 16}, {0, 0}}};
}

// A view [B, T, H, D] whose rows and batches have gaps, filled with `gap`.
template <typename T>
struct Tensor {
  Tensor(std::int64_t batches, std::int64_t time, std::int64_t heads, std::int64_t dim, T gap)
      : heads_dim(heads * dim),
        time_stride(heads * dim + 3),
        batch_stride(time * time_stride + 5),
        data(batches * batch_stride, 1) {
    std::fill_n(data.data(), data.count(), gap);
  }
  [[nodiscard]] HeadView<T> view() { return {data.data(), batch_stride, time_stride}; }
  [[nodiscard]] HeadView<const T> in() const { return {data.data(), batch_stride, time_stride}; }
  [[nodiscard]] bool is_element(std::int64_t i) const {
    return i % batch_stride < batch_stride - 5 && i % batch_stride % time_stride < heads_dim;
  }
  template <typename Value>
  void fill(Value&& value) {
    for (std::int64_t i = 0; i < data.count(); ++i)
      if (is_element(i)) data[i] = value();
  }
  std::int64_t heads_dim;
  std::int64_t time_stride;
  std::int64_t batch_stride;
  Guarded<T> data;
};

// Inputs of T; results, as those of the partial form, of the type of T's sums.
template <typename T>
struct Problem {
  using W = Wide<T>;
  static constexpr W kMark = 12345;

  explicit Problem(const Case& c, double score_scale = 1)
      : shape(c.shape),
        keys(c.keys),
        q(shape.batch, shape.time, shape.heads, shape.head_dim, gap()),
        k(shape.batch, keys.time, shape.kv_heads, shape.head_dim, gap()),
        v(k),
        o(shape.batch, shape.time, shape.heads, shape.head_dim, kMark),
        d_o(q),
        d_q(o),
        d_k(shape.batch, keys.time, shape.kv_heads, shape.head_dim, kMark),
        d_v(d_k),
        lse(static_cast<std::size_t>(shape.batch * shape.heads * shape.time)),
        row_dot(lse) {
    std::mt19937_64 random(kSeed);
    std::normal_distribution<float> normal;
    q.fill([&] { return narrow<T>(static_cast<W>(score_scale * normal(random))); });
    for (Tensor<T>* x : {&k, &v, &d_o}) x->fill([&] { return narrow<T>(W{normal(random)}); });
    clear();
  }
  static T gap() { return narrow<T>(std::numeric_limits<W>::quiet_NaN()); }
  void clear() {
    for (Tensor<W>* x : {&o, &d_q, &d_k, &d_v}) x->fill([] { return W{0}; });
    std::fill(lse.begin(), lse.end(), -std::numeric_limits<W>::infinity());
  }
  [[nodiscard]] Part pairs() const { return {0, shape.batch * shape.kv_heads}; }
  void forward(const AttentionFunctions<T>& f) {
    f.forward(shape, keys, pairs(), q.in(), k.in(), v.in(), o.view(), lse.data());
  }
  void backward(const AttentionFunctions<T>& f) {
    f.backward(shape, keys, pairs(), q.in(), k.in(), v.in(), lse.data(), row_dot.data(), d_o.in(),
               d_q.view(), d_k.view(), d_v.view());
  }
  void expect_untouched_outside() const {
    for (const Tensor<W>* x : {&o, &d_q, &d_k, &d_v}) {
      EXPECT_TRUE(x->data.is_intact());
      for (std::int64_t i = 0; i < x->data.count(); ++i) {
        if (!x->is_element(i)) {
          ASSERT_EQ(x->data[i], kMark);
        }
      }
    }
  }

  AttentionShape shape;
  KeySpan keys;
  Tensor<T> q, k, v;
  Tensor<W> o;
  Tensor<T> d_o;
  Tensor<W> d_q, d_k, d_v;
  std::vector<W> lse, row_dot;
};

template <typename T>
T* at(HeadView<T> x, const AttentionShape& s, std::int64_t b, std::int64_t t, std::int64_t h) {
  return x.data + b * x.batch_stride + t * x.time_stride + h * s.head_dim;
}

// Everything from the definition in f64, with the bound of each element's f32 error to first order.
// For one query, a score errs by at most `score_error` = (D + 6) u scale max |q||k|: D roundings of
// the product, the others for the scale and for log2 e; a weight by that much relatively, twice
// where it is divided by a sum of weights, plus (T + 20) u for sums and exponentials. Weights and
// slopes that are rounded before they are multiplied err by `rounding` more, relatively.
struct Oracle {
  template <typename T>
  explicit Oracle(const Problem<T>& p, double rounding)
      : weight_rounding(rounding),
        o(p.o.data.count()),
        o_bound(o.size()),
        lse(p.lse.size(), -kInfinity),
        lse_bound(lse.size()),
        row_dot(lse.size()),
        d_q(o.size()),
        d_q_bound(o.size()),
        d_k(p.d_k.data.count()),
        d_k_bound(d_k.size()),
        d_v(d_k.size()),
        d_v_bound(d_k.size()) {
    const AttentionShape& s = p.shape;
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t t = 0; t < s.time; ++t) query(p, b, h, t);
  }

  template <typename T>
  void query(const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t t) {
    const AttentionShape& s = p.shape;
    const std::int64_t kv = h / (s.heads / s.kv_heads);
    const std::int64_t seen = std::clamp<std::int64_t>(t + p.keys.diagonal + 1, 0, p.keys.time);
    if (seen == 0) return;
    const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
    const T* q = at(p.q.in(), s, b, t, h);
    const T* d_o = at(p.d_o.in(), s, b, t, h);
    const std::int64_t row = at(p.q.in(), s, b, t, h) - p.q.data.data();
    std::vector<double> weight(static_cast<std::size_t>(seen));
    double top = -kInfinity;
    double magnitude = 0;
    for (std::int64_t j = 0; j < seen; ++j) {
      const T* k = at(p.k.in(), s, b, j, kv);
      double score = 0;
      double size = 0;
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        score += scale * exact(q[d]) * exact(k[d]);
        size += scale * std::fabs(exact(q[d]) * exact(k[d]));
      }
      weight[static_cast<std::size_t>(j)] = score;
      top = std::max(top, score);
      magnitude = std::max(magnitude, size);
    }
    double sum = 0;
    for (double& w : weight) sum += w = std::exp(w - top);
    for (double& w : weight) w /= sum;
    const auto i = static_cast<std::size_t>((b * s.heads + h) * s.time + t);
    lse[i] = top + std::log(sum);
    const double score_error = static_cast<double>(s.head_dim + 6) * kUnit * magnitude;
    const double sum_error = static_cast<double>(p.keys.time + 20) * kUnit;
    lse_bound[i] = score_error + sum_error + 4 * kUnit * std::fabs(lse[i]);
    double dot = 0;
    for (std::int64_t d = 0; d < s.head_dim; ++d) {
      double value = 0;
      double size = 0;
      for (std::int64_t j = 0; j < seen; ++j) {
        const double v = exact(at(p.v.in(), s, b, j, kv)[d]);
        value += weight[static_cast<std::size_t>(j)] * v;
        size += weight[static_cast<std::size_t>(j)] * std::fabs(v);
        o_bound[static_cast<std::size_t>(row + d)] += 2 * kTiny * (1 + std::fabs(v));
      }
      o[static_cast<std::size_t>(row + d)] = value;
      o_bound[static_cast<std::size_t>(row + d)] +=
          (2 * (score_error + sum_error) + weight_rounding) * size;
      dot += value * exact(d_o[d]);
    }
    row_dot[i] = dot;
    const double weight_error = score_error + (20 + 3 * std::fabs(lse[i])) * kUnit;
    for (std::int64_t j = 0; j < seen; ++j) {
      const T* k = at(p.k.in(), s, b, j, kv);
      const T* v = at(p.v.in(), s, b, j, kv);
      const std::int64_t key_row = k - p.k.data.data();
      const double w = weight[static_cast<std::size_t>(j)];
      double d_weight = 0;
      double size = std::fabs(dot);
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        d_weight += exact(d_o[d]) * exact(v[d]);
        size += std::fabs(exact(d_o[d]) * exact(v[d]));
      }
      const double slope = scale * w * (d_weight - dot);
      // The slope's own error, and what summing over queries or keys adds.
      const double slope_error =
          scale * size *
              (w * (weight_error + static_cast<double>(s.head_dim + 4) * kUnit) + kTiny) +
          std::fabs(slope) * (sum_error_over(p) + weight_rounding) + kTiny;
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        const auto q_at = static_cast<std::size_t>(row + d);
        const auto k_at = static_cast<std::size_t>(key_row + d);
        d_q[q_at] += slope * exact(k[d]);
        d_q_bound[q_at] += slope_error * std::fabs(exact(k[d])) + kTiny;
        d_k[k_at] += slope * exact(q[d]);
        d_k_bound[k_at] += slope_error * std::fabs(exact(q[d])) + kTiny;
        d_v[k_at] += w * exact(d_o[d]);
        d_v_bound[k_at] +=
            kTiny + std::fabs(exact(d_o[d])) *
                        (w * (weight_error + sum_error_over(p) + weight_rounding) + kTiny);
      }
    }
  }

  // Roundings of a sum over the longer of queries (of all heads that share a key) and keys.
  template <typename T>
  static double sum_error_over(const Problem<T>& p) {
    const std::int64_t queries = p.shape.time * (p.shape.heads / p.shape.kv_heads);
    return static_cast<double>(std::max(queries, p.keys.time) + 4) * kUnit;
  }

  double weight_rounding;
  Matrix<double> o, o_bound, lse, lse_bound, row_dot, d_q, d_q_bound, d_k, d_k_bound, d_v,
      d_v_bound;
};

// Returns the largest error as a fraction of its bound.
double expect_within(const Guarded<float>& found, const Matrix<double>& exact,
                     const Matrix<double>& bound, const Tensor<float>& layout,
                     const std::string& what) {
  double worst = 0;
  for (std::int64_t i = 0; i < found.count(); ++i) {
    if (!layout.is_element(i)) continue;
    const auto at = static_cast<std::size_t>(i);
    const double error = std::fabs(found[i] - exact[at]);
    EXPECT_LE(error, bound[at]) << what << " at " << i;
    if (!(error <= bound[at])) break;
    if (bound[at] > 0) worst = std::max(worst, error / bound[at]);
  }
  return worst;
}

template <typename T>
double expect_forward(const Problem<T>& p, const Oracle& oracle, const std::string& what) {
  for (std::size_t i = 0; i < p.lse.size(); ++i) {
    if (oracle.lse[i] == -kInfinity) {
      EXPECT_EQ(p.lse[i], -kInfinity) << what;
    } else {
      EXPECT_NEAR(p.lse[i], oracle.lse[i], oracle.lse_bound[i]) << what << " lse " << i;
    }
  }
  return expect_within(p.o.data, oracle.o, oracle.o_bound, p.o, what + " o");
}

template <typename T>
double expect_backward(const Problem<T>& p, const Oracle& oracle, const std::string& what) {
  const double q = expect_within(p.d_q.data, oracle.d_q, oracle.d_q_bound, p.d_q, what + " d_q");
  const double k = expect_within(p.d_k.data, oracle.d_k, oracle.d_k_bound, p.d_k, what + " d_k");
  const double v = expect_within(p.d_v.data, oracle.d_v, oracle.d_v_bound, p.d_v, what + " d_v");
  return std::min({q, k, v});
}

template <typename T>
void set_final_sums(Problem<T>& p, const Oracle& oracle) {
  for (std::size_t i = 0; i < p.lse.size(); ++i) {
    p.lse[i] = static_cast<float>(oracle.lse[i]);
    p.row_dot[i] = static_cast<float>(oracle.row_dot[i]);
  }
}

template <typename T>
double weight_rounding(std::string_view version) {
  return std::is_same_v<T, bf16> && version == "avx512bf16" ? kWeightUnit : 0;
}

template <typename T>
class AttentionOf : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(AttentionOf, Types);

TEST(Attention, PrintsTheVersionsThisProcessorCannotRun) {
  for (const KernelRow& row : kernel_rows())
    if (row.operation == "attention" && !is_available(row))
      std::printf("attention %s is not tested here: it needs %s\n",
                  std::string(row.version).c_str(), std::string(name_of(row.isa)).c_str());
  EXPECT_GE(versions_of<AttentionFunctions<float>>().size(), 2U);
  EXPECT_GE(versions_of<AttentionFunctions<bf16>>().size(), 2U);
}

// Also from below: a result that were never worse than 1/2000 of the bound would mean that
// its sums are not f32 (or its weights not rounded), or that the bound says nothing.
TYPED_TEST(AttentionOf, StaysWithinItsBoundOfTheDefinition) {
  using T = TypeParam;
  for (const Case& c : cases())
    for (const double score_scale : {1.0, 30.0}) {
      Problem<T> p(c, score_scale);
      for (const auto& version : versions_of<AttentionFunctions<T>>()) {
        const Oracle oracle(p, weight_rounding<T>(version.version));
        const std::string what = std::string(version.version) + " " + describe(c);
        p.clear();
        p.forward(*version.functions);
        const double forward = expect_forward(p, oracle, what);
        set_final_sums(p, oracle);
        p.backward(*version.functions);
        const double backward = expect_backward(p, oracle, what);
        p.expect_untouched_outside();
        if (c.shape.time > 100 && c.keys.time > 100 && c.keys.diagonal == 0) {
          EXPECT_GE(forward, 5e-4) << what;
          EXPECT_GE(backward, 5e-4) << what;
        }
      }
    }
}

TYPED_TEST(AttentionOf, RowDotIsWithinItsBound) {
  using T = TypeParam;
  for (const std::int64_t dim : {1, 7, 16, 33, 64}) {
    Problem<T> p(causal(2, 9, 4, 2, dim));
    for (const auto& version : versions_of<AttentionFunctions<T>>()) {
      version.functions->row_dot(p.shape, p.pairs(), p.q.in(), p.d_o.in(), p.row_dot.data());
      for (std::int64_t i = 0; i < 2 * 4 * 9; ++i) {
        const T* x = at(p.q.in(), p.shape, i / 36, i % 9, i / 9 % 4);
        const T* y = at(p.d_o.in(), p.shape, i / 36, i % 9, i / 9 % 4);
        double sum = 0;
        double size = 0;
        for (std::int64_t d = 0; d < dim; ++d) {
          sum += exact(x[d]) * exact(y[d]);
          size += std::fabs(exact(x[d]) * exact(y[d]));
        }
        EXPECT_NEAR(p.row_dot[static_cast<std::size_t>(i)], sum,
                    static_cast<double>(dim + 1) * kUnit * size)
            << version.version << " " << i;
      }
    }
  }
}

// The view of the rows [part.offset, ...) of x.
template <typename T>
HeadView<T> from_row(HeadView<T> x, Part part) {
  x.data += part.offset * x.time_stride;
  return x;
}

// The keys in blocks, in any order, give the whole: what a ring of ranks does. Twice the bound,
// since each block rounds and rescales once more.
TYPED_TEST(AttentionOf, PartsOfTheKeysInAnyOrderGiveTheWhole) {
  using T = TypeParam;
  const Case whole = causal(1, 150, 2, 1, 24);
  for (const auto& version : versions_of<AttentionFunctions<T>>()) {
    Problem<T> p(whole);
    Oracle oracle(p, weight_rounding<T>(version.version));
    for (Matrix<double>* bound : {&oracle.o_bound, &oracle.lse_bound, &oracle.d_q_bound,
                                  &oracle.d_k_bound, &oracle.d_v_bound})
      for (double& x : *bound) x *= 2;
    const std::vector<Part> blocks = {{100, 50}, {0, 37}, {137, 0}, {37, 63}};
    for (const Part& block : blocks)
      version.functions->forward(p.shape, {block.count, -block.offset}, p.pairs(), p.q.in(),
                                 from_row(p.k.in(), block), from_row(p.v.in(), block), p.o.view(),
                                 p.lse.data());
    const std::string what(version.version);
    expect_forward(p, oracle, what);
    // A row_dot of what was computed where its type allows, else the exact one.
    if constexpr (std::is_same_v<T, Wide<T>>)
      version.functions->row_dot(p.shape, p.pairs(), p.o.in(), p.d_o.in(), p.row_dot.data());
    else
      set_final_sums(p, oracle);
    for (const Part& block : blocks)
      version.functions->backward(p.shape, {block.count, -block.offset}, p.pairs(), p.q.in(),
                                  from_row(p.k.in(), block), from_row(p.v.in(), block),
                                  p.lse.data(), p.row_dot.data(), p.d_o.in(), p.d_q.view(),
                                  from_row(p.d_k.view(), block), from_row(p.d_v.view(), block));
    expect_backward(p, oracle, what);
    p.expect_untouched_outside();
  }
}

// The results of the whole form, of the inputs' type.
template <typename T>
struct Whole {
  explicit Whole(const Problem<T>& p)
      : o(p.q), d_q(p.q), d_k(p.k), d_v(p.k), lse(p.lse), row_dot(p.lse) {}
  void run(Problem<T>& p, Threads threads) {
    attention_forward<T>(p.shape, p.q.in(), p.k.in(), p.v.in(), o.view(), lse.data(), threads);
    attention_row_dot<T>(p.shape, o.in(), p.d_o.in(), row_dot.data(), threads);
    attention_backward<T>(p.shape, p.q.in(), p.k.in(), p.v.in(), o.in(), lse.data(), p.d_o.in(),
                          d_q.view(), d_k.view(), d_v.view(), threads);
  }
  Tensor<T> o, d_q, d_k, d_v;
  std::vector<Wide<T>> lse, row_dot;
};

// found is `wide` rounded to T, bit for bit.
template <typename T>
void expect_rounded(const Tensor<T>& found, const Tensor<Wide<T>>& wide, const std::string& what) {
  for (std::int64_t i = 0; i < found.data.count(); ++i) {
    if (!found.is_element(i)) continue;
    ASSERT_EQ(exact(found.data[i]), exact(narrow<T>(wide.data[i]))) << what << " at " << i;
  }
  EXPECT_TRUE(found.data.is_intact());
}

template <typename T>
void expect_public_functions_agree_for_every_thread_count(const Case& c) {
  ThreadPool pool(3);
  // The partial form on all keys at once is the whole form, but for the rounding of the results.
  Problem<T> first(c);
  Whole<T> sums(first);
  sums.run(first, {});
  first.row_dot = sums.row_dot;
  first.forward(*versions_of<AttentionFunctions<T>>().back().functions);
  first.backward(*versions_of<AttentionFunctions<T>>().back().functions);
  for (const Threads threads :
       {Threads{}, Threads{.count = 2}, Threads{.count = 3, .pool = &pool}, Threads{.count = 9}}) {
    const std::string what = std::to_string(threads.count) + " threads";
    Problem<T> p(c);
    Whole<T> whole(p);
    whole.run(p, threads);
    attention_forward_partial<T>(p.shape, p.keys, p.q.in(), p.k.in(), p.v.in(), p.o.view(),
                                 p.lse.data(), threads);
    attention_backward_partial<T>(p.shape, p.keys, p.q.in(), p.k.in(), p.v.in(), p.lse.data(),
                                  whole.row_dot.data(), p.d_o.in(), p.d_q.view(), p.d_k.view(),
                                  p.d_v.view(), threads);
    EXPECT_EQ(whole.lse, first.lse);
    EXPECT_EQ(p.lse, first.lse);
    EXPECT_EQ(whole.row_dot, first.row_dot);
    expect_rounded<T>(whole.o, first.o, what + " o");
    expect_rounded<T>(whole.d_q, first.d_q, what + " d_q");
    expect_rounded<T>(whole.d_k, first.d_k, what + " d_k");
    expect_rounded<T>(whole.d_v, first.d_v, what + " d_v");
    for (const auto member : {&Problem<T>::o, &Problem<T>::d_q, &Problem<T>::d_k, &Problem<T>::d_v})
      EXPECT_EQ(0,
                std::memcmp((p.*member).data.data(), (first.*member).data.data(),
                            static_cast<std::size_t>((p.*member).data.count()) * sizeof(Wide<T>)))
          << what;
  }
}

TEST(Attention, GivesTheSameBitsForEveryThreadCountAndForm) {
  for (const Case& c : {causal(2, 70, 6, 3, 16), causal(1, 131, 2, 1, 33)}) {
    expect_public_functions_agree_for_every_thread_count<float>(c);
    expect_public_functions_agree_for_every_thread_count<bf16>(c);
    expect_public_functions_agree_for_every_thread_count<double>(c);
  }
}

// Every packed sequence has the bits of the whole form on it alone; tokens of no sequence keep
// theirs.
TYPED_TEST(AttentionOf, PackedSequencesGiveTheBitsOfEachAlone) {
  using T = TypeParam;
  const Case c = causal(1, 170, 4, 2, 20);
  const std::vector<std::int64_t> starts = {3, 4, 4, 135, 160};
  const T mark = narrow<T>(77.0F);
  ThreadPool pool(3);
  for (const Threads threads : {Threads{}, Threads{.count = 3, .pool = &pool}}) {
    Problem<T> p(c);
    Whole<T> packed(p);
    for (Tensor<T>* x : {&packed.o, &packed.d_q, &packed.d_k, &packed.d_v})
      x->fill([&] { return mark; });
    attention_forward_packed<T>(p.shape, starts, p.q.in(), p.k.in(), p.v.in(), packed.o.view(),
                                packed.lse.data(), threads);
    attention_backward_packed<T>(p.shape, starts, p.q.in(), p.k.in(), p.v.in(), packed.o.in(),
                                 packed.lse.data(), p.d_o.in(), packed.d_q.view(),
                                 packed.d_k.view(), packed.d_v.view(), threads);
    Whole<T> alone(p);
    for (Tensor<T>* x : {&alone.o, &alone.d_q, &alone.d_k, &alone.d_v})
      x->fill([&] { return mark; });
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      const Part tokens{starts[i], starts[i + 1] - starts[i]};
      AttentionShape s = p.shape;
      s.time = tokens.count;
      Wide<T>* lse = alone.lse.data() + s.heads * tokens.offset;
      attention_forward<T>(s, from_row(p.q.in(), tokens), from_row(p.k.in(), tokens),
                           from_row(p.v.in(), tokens), from_row(alone.o.view(), tokens), lse);
      attention_backward<T>(s, from_row(p.q.in(), tokens), from_row(p.k.in(), tokens),
                            from_row(p.v.in(), tokens), from_row(alone.o.in(), tokens), lse,
                            from_row(p.d_o.in(), tokens), from_row(alone.d_q.view(), tokens),
                            from_row(alone.d_k.view(), tokens), from_row(alone.d_v.view(), tokens));
    }
    EXPECT_EQ(packed.lse, alone.lse);
    for (const auto member : {&Whole<T>::o, &Whole<T>::d_q, &Whole<T>::d_k, &Whole<T>::d_v}) {
      EXPECT_TRUE((packed.*member).data.is_intact());
      EXPECT_EQ(0, std::memcmp((packed.*member).data.data(), (alone.*member).data.data(),
                               static_cast<std::size_t>((alone.*member).data.count()) * sizeof(T)));
    }
    EXPECT_EQ(exact(at(packed.o.in(), p.shape, 0, 2, 0)[0]), 77.0);
    EXPECT_EQ(exact(at(packed.o.in(), p.shape, 0, 160, 0)[0]), 77.0);
    EXPECT_NE(exact(at(packed.o.in(), p.shape, 0, 159, 0)[0]), 77.0);
  }
}

TYPED_TEST(AttentionOf, KeepsNanInARowOfAQueryAndSpreadsItFromAKey) {
  using T = TypeParam;
  const Case c = causal(1, 300, 1, 1, 16);
  const T nan = Problem<T>::gap();
  for (const auto& version : versions_of<AttentionFunctions<T>>()) {
    Problem<T> p(c);
    at(p.q.view(), p.shape, 0, 40, 0)[3] = nan;
    p.forward(*version.functions);
    for (std::int64_t t = 0; t < 300; ++t)
      EXPECT_EQ(std::isnan(at(p.o.in(), p.shape, 0, t, 0)[0]), t == 40) << version.version << t;
    EXPECT_TRUE(std::isnan(p.lse[40]));
    Problem<T> r(c);
    at(r.k.view(), r.shape, 0, 260, 0)[3] = nan;
    r.forward(*version.functions);
    for (std::int64_t t = 260; t < 300; ++t)
      EXPECT_TRUE(std::isnan(at(r.o.in(), r.shape, 0, t, 0)[0])) << version.version << t;
    for (std::int64_t t = 0; t < 128; ++t)
      EXPECT_FALSE(std::isnan(at(r.o.in(), r.shape, 0, t, 0)[0])) << version.version << t;
  }
}

// Forward and backward of 16384 positions in 64 MiB besides inputs and results, which is a
// sixteenth of one head's scores: the limit holds in a process of its own.
template <typename T>
[[noreturn]] void run_long_sequence() {
  const Case c = causal(1, 16384, 2, 1, 16);
  Problem<T> p(c);
  Whole<T> whole(p);
  constexpr rlim_t kMebibyte = rlim_t{1} << 20;
  std::ifstream status("/proc/self/status");
  rlim_t data_kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmData:") status >> data_kib;
  const rlimit limit{(data_kib << 10) + 64 * kMebibyte, RLIM_INFINITY};
  if (data_kib == 0 || setrlimit(RLIMIT_DATA, &limit) != 0) std::_Exit(3);
  if (std::unique_ptr<void, decltype(&std::free)>(std::malloc(128 * kMebibyte), &std::free))
    std::_Exit(4);  // the limit does not hold
  whole.run(p, {});
  std::_Exit(std::isfinite(exact(whole.d_q.data[0])) ? 0 : 5);
}

TYPED_TEST(AttentionOf, NeedsMemoryInProportionToTheSequence) {
  if (sinew::testing::kSanitized) GTEST_SKIP() << "sanitizers need memory of their own";
  EXPECT_EXIT(run_long_sequence<TypeParam>(), ::testing::ExitedWithCode(0), "");
}

// Loss = sum(o * d_o). Central differences with step h err by O(h^2) + O(u/h): about 1e-9 at 1e-5.
TEST(Attention, GradientsOfTheF64VersionEqualFiniteDifferences) {
  const auto& f = attention_plain<double>();
  for (const Case& c : {causal(1, 1, 1, 1, 1), causal(2, 5, 2, 2, 3), causal(1, 7, 6, 2, 4),
                        Case{{1, 6, 2, 1, 3}, {8, 1}}, Case{{1, 6, 2, 1, 3}, {5, -2}}}) {
    Problem<double> p(c);
    const auto loss = [&] {
      p.clear();
      p.forward(f);
      double sum = 0;
      for (std::int64_t i = 0; i < p.o.data.count(); ++i)
        if (p.o.is_element(i)) sum += p.o.data[i] * p.d_o.data[i];
      return sum;
    };
    loss();
    f.row_dot(p.shape, p.pairs(), p.o.in(), p.d_o.in(), p.row_dot.data());
    p.backward(f);
    const Problem<double> gradients = p;
    const double step = 1e-5;
    const auto check = [&](Tensor<double>& x, const Tensor<double>& d_x, const char* name) {
      for (std::int64_t i = 0; i < x.data.count(); ++i) {
        if (!x.is_element(i)) continue;
        const double kept = x.data[i];
        x.data[i] = kept + step;
        const double above = loss();
        x.data[i] = kept - step;
        const double below = loss();
        x.data[i] = kept;
        EXPECT_NEAR(d_x.data[i], (above - below) / (2 * step), 2e-8)
            << name << " " << i << " " << describe(c);
      }
    };
    check(p.q, gradients.d_q, "q");
    check(p.k, gradients.d_k, "k");
    check(p.v, gradients.d_v, "v");
  }
}

TEST(Attention, F64VersionEqualsTheDefinition) {
  for (const Case& c : cases()) {
    Problem<double> p(c);
    const Oracle oracle(p, 0);
    p.forward(attention_plain<double>());
    for (std::int64_t i = 0; i < p.o.data.count(); ++i) {
      if (p.o.is_element(i)) {
        ASSERT_NEAR(p.o.data[i], oracle.o[static_cast<std::size_t>(i)], 1e-12) << describe(c);
      }
    }
  }
}

// The exponential inside softmax: relative error below 1.5 u (2 u where a multiply-add rounds
// twice) if the result is a normal number, exactly 1 at 0, exactly 0 far below, for 2^20 arguments.
TEST(AttentionKernels, ExponentialIsWithinTwoUnits) {
  for (const auto& [isa, kernels] : {std::pair{Isa::kPortable, attention_kernels_portable()},
                                     std::pair{Isa::kAvx2, attention_kernels_avx2()},
                                     std::pair{Isa::kAvx512, attention_kernels_avx512()}}) {
    if (kernels == nullptr || !supports(cpu(), isa)) continue;
    const std::int64_t width = kernels->gemm->tile_columns;
    std::vector<float> zeros(static_cast<std::size_t>(width));
    std::vector<float> x(static_cast<std::size_t>(kScoreStride));
    std::vector<float> scores(x.size());
    std::vector<float> slopes(x.size());
    const auto weights_of = [&] {
      scores = x;
      kernels->softmax_backward({scores.data(), {}, 1, 1000}, slopes.data(), {}, zeros.data(),
                                zeros.data());
    };
    double worst = 0;
    for (int i = 0; i < (1 << 20); i += static_cast<int>(width)) {
      for (std::int64_t j = 0; j < width; ++j)
        x[static_cast<std::size_t>(j)] = -static_cast<float>(i + j) * 0x1p-13F;
      weights_of();
      for (std::int64_t j = 0; j < width; ++j) {
        const auto at = static_cast<std::size_t>(j);
        if (x[at] < -126) continue;
        const double exact = std::exp2(static_cast<double>(x[at]));
        worst = std::max(worst, std::fabs(scores[at] / exact - 1));
      }
    }
    EXPECT_LE(worst, (isa == Isa::kPortable ? 2 : 1.5) * kUnit) << name_of(isa);
    EXPECT_GE(worst, 0.5 * kUnit) << name_of(isa);
    x[0] = 0;
    x[1] = -151;
    x[2] = -std::numeric_limits<float>::infinity();
    x[3] = std::numeric_limits<float>::quiet_NaN();
    weights_of();
    EXPECT_EQ(scores[0], 1.0F);
    EXPECT_EQ(scores[1], 0.0F);
    EXPECT_EQ(scores[2], 0.0F);
    EXPECT_TRUE(std::isnan(scores[3]));
  }
}

}  // namespace
}  // namespace sinew::kernels
