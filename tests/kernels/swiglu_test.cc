// Laws of SwiGLU: every version against the plain f64 one within its stated bound, on strided
// halves of one matrix, backward against differences.
#include "kernels/swiglu.h"

#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

#include "kernels/registry.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

constexpr double u = 0x1p-24;

// What the header allows silu and its derivative.
template <typename T>
constexpr double kValue = std::is_same_v<T, bf16> ? 5e-5 : 5 * u;
template <typename T>
constexpr double kSlope = std::is_same_v<T, bf16> ? 5e-5 : 10 * u;

template <typename T>
class SwigluVersions : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(SwigluVersions, Types);

TYPED_TEST(SwigluVersions, ForwardAndBackwardAreWithinTheirBounds) {
  using T = TypeParam;
  for (const auto& version : versions_of<SwigluFunctions<T>>()) {
    std::mt19937_64 random(1);
    ErrorTally outputs("swiglu y " + std::string(version.version));
    ErrorTally ups("swiglu d_up " + std::string(version.version));
    ErrorTally gates("swiglu d_gate " + std::string(version.version));
    for (const std::int64_t rows : {0, 1, 3}) {
      for (const std::int64_t channels : {0, 1, 15, 16, 17, 31, 32, 33, 130, 1009}) {
        for (const double scale : {0.1, 1.0, 5.0, 60.0}) {
          const GatedShape shape{rows, channels, 2 * channels + 3};
          const std::int64_t size = rows * shape.gate_stride;
          const auto both = normal_values<T>(size, random, scale, 1);
          const auto d_y = normal_values<T>(rows * channels, random, 1.0, 2);
          Guarded<T> y(rows * channels, 3);
          Guarded<T> d_both = both;
          version.functions->forward(shape, both.data(), both.data() + channels, y.data());
          // In place: the gradients overwrite gate and up, and nothing between the rows.
          version.functions->backward(shape, d_y.data(), d_both.data(), d_both.data() + channels,
                                      d_both.data(), d_both.data() + channels);
          EXPECT_TRUE(y.is_intact() && d_both.is_intact());
          const auto e_both = exact(both);
          std::vector<double> e_y(static_cast<std::size_t>(rows * channels)), e_d_both = e_both;
          swiglu_plain<double>().forward(shape, e_both.data(), e_both.data() + channels,
                                         e_y.data());
          swiglu_plain<double>().backward(shape, exact(d_y).data(), e_both.data(),
                                          e_both.data() + channels, e_d_both.data(),
                                          e_d_both.data() + channels);
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t c = 0; c < shape.gate_stride; ++c) {
              const std::int64_t at = r * shape.gate_stride + c;
              const double e = e_d_both[static_cast<std::size_t>(at)];
              if (c >= 2 * channels) {
                EXPECT_EQ(exact(d_both[at]), exact(both[at]));
                continue;
              }
              const std::int64_t column = c % channels;
              const double gate = std::abs(exact(both[r * shape.gate_stride + column]));
              const double up = std::abs(exact(both[r * shape.gate_stride + channels + column]));
              const double d = std::abs(exact(d_y[r * channels + column]));
              const double stored =
                  storing_roundoff<T>() * std::abs(e) + 1e-35 * (1 + d * (1 + up));
              if (c < channels) {
                gates.add(d_both[at], e, kSlope<T> * d * up + stored);
                const std::int64_t i = r * channels + c;
                const double e_out = e_y[static_cast<std::size_t>(i)];
                outputs.add(
                    y[i], e_out,
                    kValue<T> * gate * up + storing_roundoff<T>() * std::abs(e_out) + 1e-33);
              } else {
                ups.add(d_both[at], e, kValue<T> * d * gate + stored);
              }
            }
          }
        }
      }
    }
    outputs.expect_tight(0.2);
    ups.expect_tight(0.2);
    gates.expect_tight(0.1);
  }
}

TYPED_TEST(SwigluVersions, SpecialValuesFollowTheLimits) {
  using T = TypeParam;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto& version : versions_of<SwigluFunctions<T>>()) {
    for (const float value : {kInfinity, -kInfinity, NAN, 3e38F, -3e38F, 0.0F}) {
      const T gate = narrow<T>(value);
      const T one = narrow<T>(1.0F);
      T y, d_gate, d_up;
      const GatedShape shape{1, 1, 1};
      version.functions->forward(shape, &gate, &one, &y);
      version.functions->backward(shape, &one, &gate, &one, &d_gate, &d_up);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(exact(y)) && std::isnan(exact(d_gate)) && std::isnan(exact(d_up)));
      } else if (value > 1) {
        EXPECT_EQ(exact(y), exact(gate));
        EXPECT_EQ(exact(d_gate), 1.0);
      } else {
        EXPECT_NEAR(exact(y), 0.0, 1e-33) << version.version << " " << value;
        EXPECT_NEAR(exact(d_gate), value == 0 ? 0.5 : 0.0, 1e-33);
        EXPECT_NEAR(exact(d_up), 0.0, 1e-33);
      }
    }
  }
}

TEST(Swiglu, BackwardIsTheDerivative) {
  for (double gate = -8; gate < 8; gate += 0.31) {
    double up = 1.5 - gate / 3;
    const double d_y = 0.7;
    const GatedShape shape{1, 1, 1};
    double y, d_gate, d_up;
    const auto loss = [&] {
      swiglu_forward<double>(shape, &gate, &up, &y);
      return d_y * y;
    };
    swiglu_backward<double>(shape, &d_y, &gate, &up, &d_gate, &d_up);
    EXPECT_NEAR(d_gate, difference(&gate, loss), 1e-9);
    EXPECT_NEAR(d_up, difference(&up, loss), 1e-9);
  }
}

TEST(Swiglu, ThreadCountChangesNoBits) {
  std::mt19937_64 random(3);
  const GatedShape shape{101, 1021, 2042};
  const auto both = normal_values<float>(shape.rows * 2042, random);
  const auto d_y = normal_values<float>(shape.rows * 1021, random);
  ThreadPool pool(3);
  std::vector<std::vector<double>> results;
  for (const Threads threads : {Threads{}, Threads{2, nullptr}, Threads{3, &pool}}) {
    Guarded<float> y(shape.rows * 1021), d_both(shape.rows * 2042);
    swiglu_forward(shape, both.data(), both.data() + 1021, y.data(), threads);
    swiglu_backward(shape, d_y.data(), both.data(), both.data() + 1021, d_both.data(),
                    d_both.data() + 1021, threads);
    for (const auto* out : {&y, &d_both}) results.push_back(exact(*out));
  }
  for (std::size_t i = 2; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 2]);
}

}  // namespace
}  // namespace sinew::kernels
