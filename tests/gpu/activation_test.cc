// GELU, SwiGLU and rotary embedding on the device against f64 formulas.
#include <cmath>
#include <limits>
#include <string>

#include "kernels/gelu.h"
#include "kernels/gelu_gpu.h"
#include "kernels/rope_gpu.h"
#include "kernels/swiglu_gpu.h"
#include "tests/gpu/device_array.h"

namespace sinew {
namespace {

using namespace testing;

template <typename T>
class GpuActivation : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(GpuActivation, Types);

TYPED_TEST(GpuActivation, GeluEqualsTheCpu) {
  for (const std::size_t count : {1U, 8U, 771U}) {
    const auto x = from_floats<TypeParam>(normal_values(count, 1, 3.0F));
    const auto d_y = from_floats<TypeParam>(normal_values(count, 2));
    const auto size = static_cast<std::int64_t>(count);
    std::vector<double> y(count), d_x(count);
    kernels::gelu_forward<double>(as_doubles(x).data(), y.data(), size);
    kernels::gelu_backward<double>(as_doubles(d_y).data(), as_doubles(x).data(), d_x.data(), size);
    for_each_schedule(
        [&](device::Stream& stream) {
          const DeviceArray<TypeParam> g_x(x, stream), gradient(d_y, stream);
          kernels::gelu_backward<TypeParam>(gradient.data(), g_x.data(), gradient.data(), size,
                                            stream);
          kernels::gelu_forward<TypeParam>(g_x.data(), g_x.data(), size, stream);
          EXPECT_LT(relative_error(g_x.download(stream), y), kRoundingError<TypeParam>);
          EXPECT_LT(relative_error(gradient.download(stream), d_x), kRoundingError<TypeParam>);
        },
        1);
  }
}

// The limits of the formulas: 0 at one end, x and slope 1 at the other; NaN stays NaN.
TYPED_TEST(GpuActivation, GeluAndSwigluFollowTheirLimitsAndKeepNan) {
  using T = TypeParam;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {kInfinity, -kInfinity, 3e38F, -3e38F, 200.0F, -200.0F, NAN};
  const auto x = from_floats<T>(special);
  const auto ones = from_floats<T>(std::vector<float>(special.size(), 1.0F));
  const auto size = static_cast<std::int64_t>(special.size());
  const auto expect_limits = [&](const std::vector<T>& values, const std::vector<T>& slopes,
                                 const std::string& what) {
    for (std::size_t i = 0; i < special.size(); ++i) {
      const float value = as_float(values[i]), slope = as_float(slopes[i]);
      if (std::isnan(special[i])) {
        EXPECT_TRUE(std::isnan(value) && std::isnan(slope)) << what;
        continue;
      }
      const bool high = special[i] > 0;
      if (high) {
        EXPECT_EQ(value, as_float(x[i])) << what << " of " << special[i];
      } else {
        EXPECT_LE(std::fabs(value), 1e-30F) << what << " of " << special[i];
      }
      EXPECT_NEAR(slope, high ? 1.0F : 0.0F, 1e-30F) << what << " of " << special[i];
    }
  };
  const kernels::GatedShape shape = {1, size, size};
  for_each_schedule(
      [&](device::Stream& stream) {
        const DeviceArray<T> g_x(x, stream), y(special.size()), slope(ones, stream);
        kernels::gelu_forward<T>(g_x.data(), y.data(), size, stream);
        kernels::gelu_backward<T>(slope.data(), g_x.data(), slope.data(), size, stream);
        expect_limits(y.download(stream), slope.download(stream), "gelu");
        const DeviceArray<T> up(ones, stream), d_y(ones, stream), d_gate(ones, stream),
            d_up(special.size());
        kernels::swiglu_forward<T>(shape, g_x.data(), up.data(), y.data(), stream);
        kernels::swiglu_backward<T>(shape, d_y.data(), g_x.data(), up.data(), d_gate.data(),
                                    d_up.data(), stream);
        expect_limits(y.download(stream), d_gate.download(stream), "swiglu");
        expect_limits(d_up.download(stream), d_gate.download(stream), "swiglu's d_up");
      },
      1);
}

TYPED_TEST(GpuActivation, SwigluEqualsItsFormulas) {
  constexpr std::int64_t kRows = 3;
  for (const std::int64_t channels : {1, 24, 70}) {
    // gate and up are the halves of one matrix.
    const kernels::GatedShape shape = {kRows, channels, 2 * channels};
    const auto both = from_floats<TypeParam>(
        normal_values(static_cast<std::size_t>(kRows * 2 * channels), 1, 2.0F));
    const auto d_y =
        from_floats<TypeParam>(normal_values(static_cast<std::size_t>(kRows * channels), 2));
    std::vector<double> y(d_y.size()), d_both(both.size());
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
        const std::size_t gate = r * 2 * static_cast<std::size_t>(channels) + c;
        const std::size_t up = gate + static_cast<std::size_t>(channels);
        const std::size_t i = r * static_cast<std::size_t>(channels) + c;
        const double g = static_cast<double>(as_float(both[gate]));
        const double u = static_cast<double>(as_float(both[up]));
        const double s = 1 / (1 + std::exp(-g));
        const double gradient = static_cast<double>(as_float(d_y[i]));
        y[i] = g * s * u;
        d_both[gate] = gradient * u * s * (1 + g * (1 - s));
        d_both[up] = gradient * g * s;
      }
    }
    for_each_schedule(
        [&](device::Stream& stream) {
          const DeviceArray<TypeParam> g_both(both, stream), g_d_y(d_y, stream), g_y(d_y.size());
          TypeParam* gate = g_both.data();
          TypeParam* up = gate + channels;
          kernels::swiglu_forward<TypeParam>(shape, gate, up, g_y.data(), stream);
          kernels::swiglu_backward<TypeParam>(shape, g_d_y.data(), gate, up, gate, up, stream);
          EXPECT_LT(relative_error(g_y.download(stream), y), kRoundingError<TypeParam>);
          EXPECT_LT(relative_error(g_both.download(stream), d_both), kRoundingError<TypeParam>);
        },
        1);
  }
}

TYPED_TEST(GpuActivation, RopeTurnsPairsByGlobalPositionAndBack) {
  // Heads of a fused QKV matrix; positions of the second half of a sequence of 4000.
  const kernels::RopeShape shape = {2, 3, 2, 6};
  constexpr std::int64_t kFirst = 2000;
  const auto x = from_floats<TypeParam>(normal_values(2 * 3 * 36, 1));
  std::vector<double> expected = as_doubles(x);
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t t = 0; t < 3; ++t) {
      for (std::size_t h = 0; h < 2; ++h) {
        for (std::size_t i = 0; i < 3; ++i) {
          const double angle = static_cast<double>(kFirst + static_cast<std::int64_t>(t)) *
                               std::pow(1e4, -2.0 * static_cast<double>(i) / 6);
          double& low = expected[b * 108 + t * 36 + h * 6 + i];
          double& high = expected[b * 108 + t * 36 + h * 6 + i + 3];
          const double u = low;
          low = u * std::cos(angle) - high * std::sin(angle);
          high = high * std::cos(angle) + u * std::sin(angle);
        }
      }
    }
  }
  device::Stream stream;
  std::vector<float> cosine(9), sine(9);
  const std::vector<std::int32_t> positions = {kFirst, kFirst + 1, kFirst + 2};
  kernels::rope_table<float>(positions, 6, 1e4, cosine.data(), sine.data());
  const DeviceArray<float> g_cosine(cosine, stream), g_sine(sine, stream);
  const DeviceArray<TypeParam> g_x(x, stream);
  const kernels::HeadView<TypeParam> view = {g_x.data(), 3 * 36, 36};
  kernels::rope<TypeParam>(shape, view, g_cosine.data(), g_sine.data(), kernels::Turn::kForward,
                           stream);
  EXPECT_LT(relative_error(g_x.download(stream), expected), kRoundingError<TypeParam>);
  kernels::rope<TypeParam>(shape, view, g_cosine.data(), g_sine.data(), kernels::Turn::kBack,
                           stream);
  EXPECT_LT(relative_error(g_x.download(stream), as_doubles(x)), 2 * kRoundingError<TypeParam>);
}

}  // namespace
}  // namespace sinew
