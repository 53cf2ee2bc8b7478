// Laws of layer norm: every version against the plain f64 one within its stated bound, backward
// against differences, the fused residual equal to the separate steps, threads without effect.
#include "kernels/layer_norm.h"

#include <gtest/gtest.h>

#include "kernels/registry.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

constexpr std::int64_t kRows[] = {0, 1, 5};
constexpr std::int64_t kChannels[] = {1, 2, 3, 15, 16, 17, 64, 65, 127, 768, 1021};
constexpr double kEpsilon = 1e-5;
constexpr double u = 0x1p-24;

// Everything one forward and one backward pass produce, from exact copies of the inputs.
struct Exact {
  std::vector<double> y, mean, rstd, d_x, d_weight, d_bias;
};

Exact run_exact(NormShape shape, const std::vector<double>& x, const std::vector<double>& weight,
                const std::vector<double>& bias, const std::vector<double>& d_y) {
  Exact e;
  e.y.resize(x.size());
  e.d_x.resize(x.size());
  e.mean.resize(static_cast<std::size_t>(shape.rows));
  e.rstd.resize(static_cast<std::size_t>(shape.rows));
  e.d_weight.resize(weight.size());
  e.d_bias.resize(weight.size());
  const auto& plain = layer_norm_plain<double>();
  plain.forward(shape, x.data(), weight.data(), bias.data(), kEpsilon, e.y.data(), e.mean.data(),
                e.rstd.data());
  plain.backward_input(shape, d_y.data(), x.data(), weight.data(), e.mean.data(), e.rstd.data(),
                       Write::kAssign, e.d_x.data());
  plain.backward_parameters(shape, d_y.data(), x.data(), e.mean.data(), e.rstd.data(),
                            e.d_weight.data(), e.d_bias.data(), 0, shape.channels);
  return e;
}

template <typename T>
class LayerNormVersions : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(LayerNormVersions, Types);

// The bound of a normalised value is u (C/64 + 16) (1 + |n|) (layer_norm.h); inputs have mean 1 and
// deviation near 1, so that the cancellation in x - mean is that of ordinary activations.
TYPED_TEST(LayerNormVersions, ForwardIsWithinItsBoundForEveryShape) {
  using T = TypeParam;
  for (const auto& version : versions_of<LayerNormFunctions<T>>()) {
    std::mt19937_64 random(1);
    ErrorTally tally("layer norm " + std::string(version.version));
    for (const std::int64_t rows : kRows) {
      for (const std::int64_t channels : kChannels) {
        const NormShape shape{rows, channels};
        auto x = normal_values<T>(rows * channels, random, 1.0, 3);
        for (std::int64_t i = 0; i < rows * channels; ++i) {
          x[i] = narrow<T>(widen(x[i]) + Wide<T>{1});
        }
        const auto weight = normal_values<T>(channels, random, 1.0, 1);
        const auto bias = normal_values<T>(channels, random, 1.0, 2);
        Guarded<T> y(rows * channels, 1);
        Guarded<float> mean(rows, 1);
        Guarded<float> rstd(rows, 2);
        version.functions->forward(shape, x.data(), weight.data(), bias.data(), kEpsilon, y.data(),
                                   mean.data(), rstd.data());
        EXPECT_TRUE(y.is_intact() && mean.is_intact() && rstd.is_intact());
        const Exact e = run_exact(shape, exact(x), exact(weight), exact(bias), exact(x));
        for (std::int64_t i = 0; i < rows * channels; ++i) {
          const auto s = static_cast<std::size_t>(i);
          const auto r = static_cast<std::size_t>(i / channels);
          const double w = std::abs(exact(weight[i % channels]));
          const double b = std::abs(exact(bias[i % channels]));
          const double n = std::abs((exact(x[i]) - e.mean[r]) * e.rstd[r]);
          // One channel: n is 0 and rstd = 1/sqrt(epsilon) multiplies the rounding of the mean.
          const double amplified = channels < 3 ? e.rstd[r] : 1.0;
          const double bound =
              u * (static_cast<double>(channels) / 64 + 16) * (1 + n) * w * amplified + 2 * u * b;
          tally.add(y[i], e.y[s], bound + storing_roundoff<T>() * std::abs(e.y[s]));
        }
        for (std::int64_t r = 0; r < rows; ++r) {
          EXPECT_NEAR(mean[r], e.mean[static_cast<std::size_t>(r)], 40 * u);
          EXPECT_NEAR(rstd[r] / e.rstd[static_cast<std::size_t>(r)], 1.0,
                      channels < 3 ? 0.1 : 40 * u);
        }
        Guarded<T> in_place = x;
        version.functions->forward(shape, in_place.data(), weight.data(), bias.data(), kEpsilon,
                                   in_place.data(), mean.data(), rstd.data());
        EXPECT_EQ(exact(in_place), exact(y));
      }
    }
    tally.expect_tight(0.02);
  }
}

TYPED_TEST(LayerNormVersions, TheFusedResidualEqualsTheSeparateSteps) {
  using T = TypeParam;
  for (const auto& version : versions_of<LayerNormFunctions<T>>()) {
    std::mt19937_64 random(2);
    for (const std::int64_t channels : kChannels) {
      const NormShape shape{4, channels};
      const auto residual = normal_values<T>(4 * channels, random, 1.0, 1);
      const auto x = normal_values<T>(4 * channels, random, 1.0, 2);
      const auto weight = normal_values<T>(channels, random);
      const auto bias = normal_values<T>(channels, random);
      Guarded<T> sum(4 * channels);
      for (std::int64_t i = 0; i < sum.count(); ++i) {
        sum[i] = narrow<T>(widen(residual[i]) + widen(x[i]));
      }
      Guarded<T> expected(4 * channels);
      Guarded<float> mean(4), rstd(4), fused_mean(4), fused_rstd(4);
      version.functions->forward(shape, sum.data(), weight.data(), bias.data(), kEpsilon,
                                 expected.data(), mean.data(), rstd.data());
      Guarded<T> fused_sum = residual;
      Guarded<T> y(4 * channels, 3);
      version.functions->residual_forward(shape, fused_sum.data(), x.data(), weight.data(),
                                          bias.data(), kEpsilon, y.data(), fused_mean.data(),
                                          fused_rstd.data());
      EXPECT_EQ(exact(fused_sum), exact(sum));
      EXPECT_EQ(exact(y), exact(expected));
      EXPECT_EQ(exact(fused_mean), exact(mean));
      EXPECT_EQ(exact(fused_rstd), exact(rstd));
      EXPECT_TRUE(fused_sum.is_intact() && y.is_intact());
    }
  }
}

// Each sum of a row has C/64 + 16 roundings of terms of mean magnitude |g| (1 + |n|); what is
// subtracted from g is of that size, and rstd scales it all.
TYPED_TEST(LayerNormVersions, BackwardIsWithinItsBoundForEveryShapeAndMode) {
  using T = TypeParam;
  for (const auto& version : versions_of<LayerNormFunctions<T>>()) {
    std::mt19937_64 random(3);
    ErrorTally tally("layer norm backward " + std::string(version.version));
    ErrorTally parameters("layer norm parameters " + std::string(version.version));
    for (const std::int64_t rows : kRows) {
      for (const std::int64_t channels : {3, 15, 16, 17, 64, 65, 127, 768, 1021}) {
        const NormShape shape{rows, channels};
        const auto x = normal_values<T>(rows * channels, random, 1.0, 3);
        const auto d_y = normal_values<T>(rows * channels, random, 1.0, 1);
        const auto weight = normal_values<T>(channels, random, 1.0, 1);
        const auto before = normal_values<T>(rows * channels, random, 1.0, 2);
        const Exact e = run_exact(shape, exact(x), exact(weight), exact(weight), exact(d_y));
        Guarded<float> mean(rows), rstd(rows);
        for (std::int64_t r = 0; r < rows; ++r) {
          mean[r] = static_cast<float>(e.mean[static_cast<std::size_t>(r)]);
          rstd[r] = static_cast<float>(e.rstd[static_cast<std::size_t>(r)]);
        }
        for (const Write mode : {Write::kAssign, Write::kAccumulate}) {
          Guarded<T> d_x = before;
          version.functions->backward_input(shape, d_y.data(), x.data(), weight.data(), mean.data(),
                                            rstd.data(), mode, d_x.data());
          EXPECT_TRUE(d_x.is_intact());
          for (std::int64_t i = 0; i < rows * channels; ++i) {
            const auto r = static_cast<std::size_t>(i / channels);
            const double old = mode == Write::kAccumulate ? exact(before[i]) : 0.0;
            const double expected = e.d_x[static_cast<std::size_t>(i)] + old;
            const double n = std::abs((exact(x[i]) - e.mean[r]) * e.rstd[r]);
            const double g = std::abs(exact(d_y[i]) * exact(weight[i % channels]));
            const double sums = u * (static_cast<double>(channels) / 64 + 16) * 2 * (1 + n);
            const double bound = e.rstd[r] * (sums + 4 * u * (g + n)) + 2 * u * std::abs(old);
            tally.add(d_x[i], expected, bound + storing_roundoff<T>() * std::abs(expected));
          }
          Guarded<T> in_place = d_y;
          if (mode == Write::kAssign) {
            version.functions->backward_input(shape, in_place.data(), x.data(), weight.data(),
                                              mean.data(), rstd.data(), mode, in_place.data());
            EXPECT_EQ(exact(in_place), exact(d_x));
          }
        }
        Guarded<float> d_weight(channels, 1), d_bias(channels, 2);
        for (std::int64_t c = 0; c < channels; ++c) d_weight[c] = d_bias[c] = 1.0F;
        version.functions->backward_parameters(shape, d_y.data(), x.data(), mean.data(),
                                               rstd.data(), d_weight.data(), d_bias.data(), 0,
                                               channels);
        EXPECT_TRUE(d_weight.is_intact() && d_bias.is_intact());
        for (std::int64_t c = 0; c < channels; ++c) {
          const auto s = static_cast<std::size_t>(c);
          const double bound =
              u * static_cast<double>(rows + 4) * (2 + 3.0 * static_cast<double>(rows) * 4);
          parameters.add(d_weight[c], e.d_weight[s] + 1, bound);
          parameters.add(d_bias[c], e.d_bias[s] + 1, bound);
        }
      }
    }
    tally.expect_tight(0.02);
    parameters.expect_tight(0.01);
  }
}

TEST(LayerNorm, BackwardIsTheDerivative) {
  std::mt19937_64 random(4);
  const NormShape shape{3, 7};
  auto x = exact(normal_values<double>(21, random));
  auto weight = exact(normal_values<double>(7, random));
  auto bias = exact(normal_values<double>(7, random));
  const auto d_y = exact(normal_values<double>(21, random));
  const auto loss = [&] {
    std::vector<double> y(21), mean(3), rstd(3);
    layer_norm_forward<double>(shape, x.data(), weight.data(), bias.data(), kEpsilon, y.data(),
                               mean.data(), rstd.data());
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * d_y[i];
    return sum;
  };
  std::vector<double> y(21), mean(3), rstd(3), d_x(21), d_weight(7), d_bias(7);
  layer_norm_forward<double>(shape, x.data(), weight.data(), bias.data(), kEpsilon, y.data(),
                             mean.data(), rstd.data());
  layer_norm_backward<double>(shape, d_y.data(), x.data(), weight.data(), mean.data(), rstd.data(),
                              Write::kAssign, d_x.data(), d_weight.data(), d_bias.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(d_x[i], difference(&x[i], loss), 2e-8);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    EXPECT_NEAR(d_weight[i], difference(&weight[i], loss), 2e-8);
    EXPECT_NEAR(d_bias[i], difference(&bias[i], loss), 2e-8);
  }
}

TYPED_TEST(LayerNormVersions, ANaNStaysInItsRow) {
  using T = TypeParam;
  for (const auto& version : versions_of<LayerNormFunctions<T>>()) {
    const NormShape shape{3, 37};
    std::mt19937_64 random(5);
    auto x = normal_values<T>(3 * 37, random);
    const auto weight = normal_values<T>(37, random);
    x[37 + 36] = narrow<T>(NAN);
    Guarded<T> y(3 * 37);
    Guarded<float> mean(3), rstd(3);
    version.functions->forward(shape, x.data(), weight.data(), weight.data(), kEpsilon, y.data(),
                               mean.data(), rstd.data());
    for (std::int64_t i = 0; i < y.count(); ++i) {
      EXPECT_EQ(std::isnan(exact(y[i])), i / 37 == 1) << version.version;
    }
  }
}

// 2 threads without a pool and 3 with one; rows enough for several cache blocks.
TEST(LayerNorm, ThreadCountChangesNoBits) {
  std::mt19937_64 random(6);
  const NormShape shape{150, 1021};
  const std::int64_t count = shape.rows * shape.channels;
  const auto x = normal_values<float>(count, random);
  const auto d_y = normal_values<float>(count, random);
  const auto weight = normal_values<float>(shape.channels, random);
  ThreadPool pool(3);
  std::vector<std::vector<double>> results;
  for (const Threads threads : {Threads{}, Threads{2, nullptr}, Threads{3, &pool}}) {
    Guarded<float> y(count), residual(count), d_x = d_y;
    Guarded<float> mean(shape.rows), rstd(shape.rows), d_weight(shape.channels),
        d_bias(shape.channels);
    residual_layer_norm_forward<float>(shape, residual.data(), x.data(), weight.data(),
                                       weight.data(), 1e-5F, y.data(), mean.data(), rstd.data(),
                                       threads);
    layer_norm_backward<float>(shape, d_x.data(), x.data(), weight.data(), mean.data(), rstd.data(),
                               Write::kAssign, d_x.data(), d_weight.data(), d_bias.data(), threads);
    for (const auto* out : {&y, &mean, &rstd, &d_x, &d_weight, &d_bias}) {
      results.push_back(exact(*out));
    }
  }
  for (std::size_t i = 6; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 6]);
}

}  // namespace
}  // namespace sinew::kernels
