// Laws of GELU: every version against the plain f64 one within its stated bound, backward against
// differences.
#include "kernels/gelu.h"

#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

#include "kernels/registry.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

constexpr std::int64_t kCounts[] = {0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 127, 1009};

// What the header allows the activation and its derivative, times |x| and |d_y|.
template <typename T>
constexpr double kForward = std::is_same_v<T, bf16> ? 1e-5 : 4 * 0x1p-24;
template <typename T>
constexpr double kBackward = std::is_same_v<T, bf16> ? 4e-5 : 12 * 0x1p-24;

template <typename T>
class GeluVersions : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(GeluVersions, Types);

TYPED_TEST(GeluVersions, ForwardIsWithinItsBoundOfItsArgument) {
  using T = TypeParam;
  for (const auto& version : versions_of<GeluFunctions<T>>()) {
    std::mt19937_64 random(1);
    ErrorTally tally("gelu forward " + std::string(version.version));
    for (const double scale : {1e-3, 1.0, 4.0, 100.0}) {
      for (const std::int64_t count : kCounts) {
        const auto x = normal_values<T>(count, random, scale, count % 5);
        Guarded<T> y(count, count % 7);
        version.functions->forward(x.data(), y.data(), count);
        ASSERT_TRUE(y.is_intact());
        for (std::int64_t i = 0; i < count; ++i) {
          double expected;
          const double value = exact(x[i]);
          gelu_plain<double>().forward(&value, &expected, 1);
          tally.add(
              y[i], expected,
              kForward<T> * std::abs(value) + storing_roundoff<T>() * std::abs(expected) + 1e-38);
        }
        Guarded<T> in_place = x;
        version.functions->forward(in_place.data(), in_place.data(), count);
        EXPECT_EQ(exact(in_place), exact(y));
      }
    }
    tally.expect_tight(0.2);
  }
}

TYPED_TEST(GeluVersions, BackwardIsWithinItsBound) {
  using T = TypeParam;
  for (const auto& version : versions_of<GeluFunctions<T>>()) {
    std::mt19937_64 random(2);
    ErrorTally tally("gelu backward " + std::string(version.version));
    for (const double scale : {0.1, 1.0, 4.0, 1e6}) {
      for (const std::int64_t count : kCounts) {
        const auto x = normal_values<T>(count, random, scale, count % 5);
        const auto d_y = normal_values<T>(count, random, 1.0, count % 3);
        Guarded<T> d_x(count, count % 7);
        version.functions->backward(d_y.data(), x.data(), d_x.data(), count);
        ASSERT_TRUE(d_x.is_intact());
        for (std::int64_t i = 0; i < count; ++i) {
          double expected;
          const double value = exact(x[i]);
          const double gradient = exact(d_y[i]);
          gelu_plain<double>().backward(&gradient, &value, &expected, 1);
          tally.add(d_x[i], expected,
                    kBackward<T> * std::abs(gradient) + storing_roundoff<T>() * std::abs(expected) +
                        1e-38);
        }
        Guarded<T> in_place = d_y;
        version.functions->backward(in_place.data(), x.data(), in_place.data(), count);
        EXPECT_EQ(exact(in_place), exact(d_x));
      }
    }
    tally.expect_tight(0.1);
  }
}

TYPED_TEST(GeluVersions, TheFusedBiasEqualsTheSeparateSteps) {
  using T = TypeParam;
  constexpr double u = 0x1p-24;
  for (const auto& version : versions_of<GeluFunctions<T>>()) {
    std::mt19937_64 random(3);
    for (const std::int64_t rows : {0, 1, 3, 10}) {
      for (const std::int64_t channels : {0, 1, 7, 16, 33, 100}) {
        const auto x = normal_values<T>(rows * channels, random, 2.0, 1);
        const auto bias = normal_values<T>(channels, random, 1.0, 3);
        Guarded<T> sum = x;
        Guarded<T> y(rows * channels, 5);
        version.functions->bias_forward(sum.data(), bias.data(), y.data(), rows, channels);
        Guarded<T> separate(rows * channels);
        version.functions->forward(sum.data(), separate.data(), rows * channels);
        EXPECT_EQ(exact(y), exact(separate));
        for (std::int64_t i = 0; i < rows * channels; ++i) {
          EXPECT_EQ(exact(sum[i]), exact(narrow<T>(widen(x[i]) + widen(bias[i % channels]))));
        }
        const auto d_y = normal_values<T>(rows * channels, random);
        Guarded<T> d_x(rows * channels, 1);
        Guarded<Wide<T>> d_bias(channels, 1);
        for (std::int64_t c = 0; c < channels; ++c) d_bias[c] = static_cast<float>(c);
        version.functions->bias_backward(d_y.data(), sum.data(), d_x.data(), d_bias.data(), rows,
                                         channels, 0, channels);
        version.functions->backward(d_y.data(), sum.data(), separate.data(), rows * channels);
        EXPECT_EQ(exact(d_x), exact(separate));
        for (std::int64_t c = 0; c < channels; ++c) {
          double expected = static_cast<double>(c);
          double magnitude = expected;
          for (std::int64_t r = 0; r < rows; ++r) {
            const double gradient = exact(d_y[r * channels + c]);
            const double value = exact(sum[r * channels + c]);
            double term;
            gelu_plain<double>().backward(&gradient, &value, &term, 1);
            expected += term;
            magnitude += std::abs(gradient) * 1.2;
          }
          EXPECT_NEAR(exact(d_bias[c]), expected,
                      (kBackward<T> + static_cast<double>(rows) * u) * magnitude);
        }
        EXPECT_TRUE(sum.is_intact() && y.is_intact() && d_x.is_intact() && d_bias.is_intact());
      }
    }
  }
}

TYPED_TEST(GeluVersions, SpecialValuesAndPositionInTheArray) {
  using T = TypeParam;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0F, -0.0F, kInfinity, -kInfinity, NAN, 3e38F, -3e38F, 1e-40F, -40.0F};
  for (const auto& version : versions_of<GeluFunctions<T>>()) {
    for (std::int64_t place = 0; place < 40; ++place) {
      Guarded<T> x(40);
      Guarded<T> y(40);
      Guarded<T> slope(40);
      Guarded<T> ones(40);
      for (std::int64_t i = 0; i < 40; ++i) ones[i] = narrow<T>(1.0F);
      for (const float value : special) {
        x[place] = narrow<T>(value);
        version.functions->forward(x.data(), y.data(), 40);
        version.functions->backward(ones.data(), x.data(), slope.data(), 40);
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(exact(y[place])) && std::isnan(exact(slope[place])));
        } else {
          const double stored = exact(x[place]);
          if (value > 1) {
            EXPECT_EQ(exact(y[place]), stored);
          } else {
            EXPECT_NEAR(exact(y[place]), 0.0, 1e-30) << version.version << " " << value;
          }
          EXPECT_NEAR(exact(slope[place]), value > 1 ? 1.0 : value < -1 ? 0.0 : 0.5, 1e-6);
        }
      }
    }
  }
}

TEST(Gelu, BackwardIsTheDerivative) {
  for (double x = -9; x < 9; x += 0.173) {
    double d_x;
    const double one = 1;
    gelu_backward(&one, &x, &d_x, 1);
    const double expected = difference(&x, [&] {
      double y;
      gelu_forward(&x, &y, 1);
      return y;
    });
    EXPECT_NEAR(d_x, expected, 1e-9) << x;
  }
}

TEST(Gelu, ThreadCountChangesNoBits) {
  std::mt19937_64 random(4);
  const std::int64_t rows = 129;
  const std::int64_t channels = 1021;
  const std::int64_t count = rows * channels;
  const auto x = normal_values<float>(count, random);
  const auto d_y = normal_values<float>(count, random);
  const auto bias = normal_values<float>(channels, random);
  ThreadPool pool(3);
  std::vector<std::vector<double>> results;
  for (const Threads threads : {Threads{}, Threads{2, nullptr}, Threads{3, &pool}}) {
    Guarded<float> sum = x;
    Guarded<float> y(count);
    Guarded<float> d_x(count);
    Guarded<float> d_bias(channels);
    bias_gelu_forward(sum.data(), bias.data(), y.data(), rows, channels, threads);
    bias_gelu_backward(d_y.data(), sum.data(), d_x.data(), d_bias.data(), rows, channels, threads);
    for (const auto* out : {&y, &d_x, &d_bias}) results.push_back(exact(*out));
    gelu_forward(sum.data(), y.data(), count, threads);
    gelu_backward(d_y.data(), sum.data(), d_x.data(), count, threads);
    for (const auto* out : {&y, &d_x}) results.push_back(exact(*out));
  }
  for (std::size_t i = 5; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 5]);
}

}  // namespace
}  // namespace sinew::kernels
