// Laws of RMS norm: every version against the plain f64 one within its stated bound, backward
// against differences, the fused residual equal to the separate steps, threads without effect.
#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include "kernels/registry.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

constexpr std::int64_t kChannels[] = {1, 2, 3, 15, 16, 17, 64, 65, 127, 768, 1021};
constexpr double kEpsilon = 1e-5;
constexpr double u = 0x1p-24;

template <typename T>
class RmsNormVersions : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(RmsNormVersions, Types);

TYPED_TEST(RmsNormVersions, ForwardIsWithinItsBoundForEveryShape) {
  using T = TypeParam;
  for (const auto& version : versions_of<RmsNormFunctions<T>>()) {
    std::mt19937_64 random(1);
    ErrorTally tally("rms norm " + std::string(version.version));
    for (const std::int64_t rows : {0, 1, 4, 7}) {
      for (const std::int64_t channels : kChannels) {
        const NormShape shape{rows, channels};
        const auto x = normal_values<T>(rows * channels, random, 3.0, 3);
        const auto weight = normal_values<T>(channels, random, 1.0, 1);
        Guarded<T> y(rows * channels, 1);
        Guarded<float> rstd(rows, 1);
        version.functions->forward(shape, x.data(), weight.data(), kEpsilon, y.data(), rstd.data());
        EXPECT_TRUE(y.is_intact() && rstd.is_intact());
        std::vector<double> expected(static_cast<std::size_t>(rows * channels));
        std::vector<double> e_rstd(static_cast<std::size_t>(rows));
        rms_norm_plain<double>().forward(shape, exact(x).data(), exact(weight).data(), kEpsilon,
                                         expected.data(), e_rstd.data());
        const double relative = u * (static_cast<double>(channels) / 16 + 8);
        for (std::int64_t i = 0; i < rows * channels; ++i) {
          const double e = expected[static_cast<std::size_t>(i)];
          tally.add(y[i], e, (relative + storing_roundoff<T>()) * std::abs(e));
        }
        for (std::int64_t r = 0; r < rows; ++r) {
          EXPECT_NEAR(rstd[r] / e_rstd[static_cast<std::size_t>(r)], 1.0, relative);
        }
        Guarded<T> in_place = x;
        version.functions->forward(shape, in_place.data(), weight.data(), kEpsilon, in_place.data(),
                                   rstd.data());
        EXPECT_EQ(exact(in_place), exact(y));
      }
    }
    tally.expect_tight(0.1);
  }
}

TYPED_TEST(RmsNormVersions, TheFusedResidualEqualsTheSeparateSteps) {
  using T = TypeParam;
  for (const auto& version : versions_of<RmsNormFunctions<T>>()) {
    std::mt19937_64 random(2);
    for (const std::int64_t channels : kChannels) {
      const NormShape shape{5, channels};
      const auto residual = normal_values<T>(5 * channels, random, 1.0, 1);
      const auto x = normal_values<T>(5 * channels, random, 1.0, 2);
      const auto weight = normal_values<T>(channels, random);
      Guarded<T> sum(5 * channels);
      for (std::int64_t i = 0; i < sum.count(); ++i) {
        sum[i] = narrow<T>(widen(residual[i]) + widen(x[i]));
      }
      Guarded<T> expected(5 * channels);
      Guarded<float> rstd(5), fused_rstd(5);
      version.functions->forward(shape, sum.data(), weight.data(), kEpsilon, expected.data(),
                                 rstd.data());
      Guarded<T> fused_sum = residual;
      Guarded<T> y(5 * channels, 3);
      version.functions->residual_forward(shape, fused_sum.data(), x.data(), weight.data(),
                                          kEpsilon, y.data(), fused_rstd.data());
      EXPECT_EQ(exact(fused_sum), exact(sum));
      EXPECT_EQ(exact(y), exact(expected));
      EXPECT_EQ(exact(fused_rstd), exact(rstd));
      EXPECT_TRUE(fused_sum.is_intact() && y.is_intact());
    }
  }
}

// The mean of g n has C/8 + 16 roundings of terms of mean magnitude |g n|; d_x is rstd times values
// near |g| + |n|.
TYPED_TEST(RmsNormVersions, BackwardIsWithinItsBoundAndItsHalvesGiveTheSameBits) {
  using T = TypeParam;
  for (const auto& version : versions_of<RmsNormFunctions<T>>()) {
    std::mt19937_64 random(3);
    ErrorTally inputs("rms norm d_x " + std::string(version.version));
    ErrorTally parameters("rms norm d_weight " + std::string(version.version));
    for (const std::int64_t rows : {0, 1, 4, 6}) {
      for (const std::int64_t channels : kChannels) {
        const NormShape shape{rows, channels};
        const auto x = normal_values<T>(rows * channels, random, 1.0, 3);
        const auto d_y = normal_values<T>(rows * channels, random, 1.0, 1);
        const auto weight = normal_values<T>(channels, random, 1.0, 1);
        const auto before = normal_values<T>(rows * channels, random, 1.0, 2);
        std::vector<double> e_y(static_cast<std::size_t>(rows * channels)), e_d_x(e_y.size());
        std::vector<double> e_rstd(static_cast<std::size_t>(rows));
        std::vector<double> e_d_weight(static_cast<std::size_t>(channels), 1.0);
        const auto& plain = rms_norm_plain<double>();
        plain.forward(shape, exact(x).data(), exact(weight).data(), kEpsilon, e_y.data(),
                      e_rstd.data());
        plain.backward(shape, exact(d_y).data(), exact(x).data(), exact(weight).data(),
                       e_rstd.data(), Write::kAssign, e_d_x.data(), e_d_weight.data());
        Guarded<float> rstd(rows);
        for (std::int64_t r = 0; r < rows; ++r) {
          rstd[r] = static_cast<float>(e_rstd[static_cast<std::size_t>(r)]);
        }
        for (const Write mode : {Write::kAssign, Write::kAccumulate}) {
          Guarded<T> d_x = before;
          Guarded<float> d_weight(channels, 1);
          for (std::int64_t c = 0; c < channels; ++c) d_weight[c] = 1.0F;
          version.functions->backward(shape, d_y.data(), x.data(), weight.data(), rstd.data(), mode,
                                      d_x.data(), d_weight.data());
          EXPECT_TRUE(d_x.is_intact() && d_weight.is_intact());
          for (std::int64_t i = 0; i < rows * channels; ++i) {
            const auto r = static_cast<std::size_t>(i / channels);
            const double old = mode == Write::kAccumulate ? exact(before[i]) : 0.0;
            const double expected = e_d_x[static_cast<std::size_t>(i)] + old;
            const double n = std::abs(exact(x[i]) * e_rstd[r]);
            const double g = std::abs(exact(d_y[i]) * exact(weight[i % channels]));
            const double means = (static_cast<double>(channels) / 8 + 16) * n * 3;
            const double bound = u * (e_rstd[r] * (means + 4 * (g + n)) + 2 * std::abs(old));
            inputs.add(d_x[i], expected, bound + storing_roundoff<T>() * std::abs(expected));
          }
          for (std::int64_t c = 0; c < channels; ++c) {
            double magnitude = 1;
            for (std::int64_t r = 0; r < rows; ++r) {
              magnitude += std::abs(exact(d_y[r * channels + c]) * exact(x[r * channels + c])) *
                           e_rstd[static_cast<std::size_t>(r)];
            }
            parameters.add(d_weight[c], e_d_weight[static_cast<std::size_t>(c)],
                           u * static_cast<double>(rows + 3) * magnitude);
          }

          Guarded<T> half = before;
          Guarded<float> half_weight(channels);
          for (std::int64_t c = 0; c < channels; ++c) half_weight[c] = 1.0F;
          version.functions->backward_parameters(shape, d_y.data(), x.data(), rstd.data(),
                                                 half_weight.data(), 0, channels / 3);
          version.functions->backward_parameters(shape, d_y.data(), x.data(), rstd.data(),
                                                 half_weight.data(), channels / 3, channels);
          version.functions->backward_input(shape, d_y.data(), x.data(), weight.data(), rstd.data(),
                                            mode, half.data());
          EXPECT_EQ(exact(half), exact(d_x));
          EXPECT_EQ(exact(half_weight), exact(d_weight));
        }
        Guarded<T> in_place = d_y;
        Guarded<T> apart(rows * channels);
        Guarded<float> d_weight(channels);
        version.functions->backward(shape, d_y.data(), x.data(), weight.data(), rstd.data(),
                                    Write::kAssign, apart.data(), d_weight.data());
        version.functions->backward(shape, in_place.data(), x.data(), weight.data(), rstd.data(),
                                    Write::kAssign, in_place.data(), d_weight.data());
        EXPECT_EQ(exact(in_place), exact(apart));
      }
    }
    inputs.expect_tight(0.02);
    parameters.expect_tight(0.05);
  }
}

TEST(RmsNorm, BackwardIsTheDerivative) {
  std::mt19937_64 random(4);
  const NormShape shape{3, 7};
  auto x = exact(normal_values<double>(21, random));
  auto weight = exact(normal_values<double>(7, random));
  const auto d_y = exact(normal_values<double>(21, random));
  std::vector<double> y(21), rstd(3), d_x(21), d_weight(7);
  const auto loss = [&] {
    rms_norm_forward<double>(shape, x.data(), weight.data(), kEpsilon, y.data(), rstd.data());
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * d_y[i];
    return sum;
  };
  loss();
  rms_norm_backward<double>(shape, d_y.data(), x.data(), weight.data(), rstd.data(), Write::kAssign,
                            d_x.data(), d_weight.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(d_x[i], difference(&x[i], loss), 2e-8);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    EXPECT_NEAR(d_weight[i], difference(&weight[i], loss), 2e-8);
  }
}

TEST(RmsNorm, ThreadCountChangesNoBits) {
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
    Guarded<float> rstd(shape.rows), d_weight(shape.channels);
    residual_rms_norm_forward<float>(shape, residual.data(), x.data(), weight.data(), 1e-5F,
                                     y.data(), rstd.data(), threads);
    rms_norm_backward<float>(shape, d_x.data(), x.data(), weight.data(), rstd.data(),
                             Write::kAssign, d_x.data(), d_weight.data(), threads);
    for (const auto* out : {&y, &rstd, &d_x, &d_weight}) results.push_back(exact(*out));
  }
  for (std::size_t i = 4; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 4]);
}

}  // namespace
}  // namespace sinew::kernels
