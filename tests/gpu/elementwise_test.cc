// Small kernels, the optimiser step, conversions and dropout on the device.
#include "kernels/elementwise.h"

#include <numeric>

#include "kernels/adamw.h"
#include "kernels/adamw_gpu.h"
#include "kernels/device/column_sums.h"
#include "kernels/elementwise_gpu.h"
#include "kernels/mixed_adamw.h"
#include "tests/gpu/device_array.h"

namespace sinew {
namespace {

using namespace testing;

template <typename T>
class GpuElementwise : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(GpuElementwise, Types);

TYPED_TEST(GpuElementwise, AdditionsRoundOnce) {
  constexpr std::int64_t kRows = 3;
  for (const std::int64_t channels : {5, 64, 300}) {
    const auto count = static_cast<std::size_t>(kRows * channels);
    const auto x = from_floats<TypeParam>(normal_values(count, 1));
    const auto other = from_floats<TypeParam>(normal_values(count, 2));
    std::vector<TypeParam> sum, biased;
    for (std::size_t i = 0; i < count; ++i) {
      const auto c = i % static_cast<std::size_t>(channels);
      sum.push_back(from_float<TypeParam>(as_float(x[i]) + as_float(other[i])));
      biased.push_back(from_float<TypeParam>(as_float(sum[i]) + as_float(other[c])));
    }
    for_each_schedule(
        [&](device::Stream& stream) {
          const DeviceArray<TypeParam> g_x(x, stream), g_other(other, stream);
          kernels::add<TypeParam>(g_x.data(), g_other.data(), kRows * channels, stream);
          EXPECT_TRUE(same_bits(g_x.download(stream), sum));
          kernels::add_bias<TypeParam>(g_x.data(), g_other.data(), kRows, channels, stream);
          EXPECT_TRUE(same_bits(g_x.download(stream), biased));
        },
        1);
  }
}

TYPED_TEST(GpuElementwise, SumOfSquaresIsExactToF64AndTheSameEveryTime) {
  for (const std::int64_t count : {0, 1, 1000, 40000}) {
    const auto x = from_floats<TypeParam>(normal_values(static_cast<std::size_t>(count), 1));
    double expected = 0;
    for (const double value : as_doubles(x)) expected += value * value;
    double first = -1;
    for_each_schedule(
        [&](device::Stream& stream) {
          const DeviceArray<TypeParam> g_x(x, stream);
          const DeviceArray<double> result(1);
          const DeviceArray<double> workspace(
              static_cast<std::size_t>(kernels::sum_of_squares_workspace(count)));
          kernels::sum_of_squares<TypeParam>(g_x.data(), count, result.data(), workspace.data(),
                                             stream);
          const double sum = result.download(stream)[0];
          EXPECT_NEAR(sum, expected, 1e-12 * expected);
          if (first < 0) first = sum;
          EXPECT_EQ(sum, first);
        },
        1);
  }
}

TYPED_TEST(GpuElementwise, BiasBackwardAddsEveryRow) {
  device::Stream stream;
  const auto d_y = from_floats<TypeParam>(normal_values(200 * 10, 1));
  std::vector<double> expected(10, 1.0);
  for (std::size_t i = 0; i < d_y.size(); ++i) {
    expected[i % 10] += static_cast<double>(as_float(d_y[i]));
  }
  const DeviceArray<TypeParam> g_d_y(d_y, stream);
  const DeviceArray<float> d_bias(std::vector<float>(10, 1.0F), stream);
  const DeviceArray<float> workspace(
      static_cast<std::size_t>(kernels::column_sums_workspace(200, 10)));
  kernels::bias_backward<TypeParam>(g_d_y.data(), d_bias.data(), 200, 10, workspace.data(), stream);
  EXPECT_LT(relative_error(d_bias.download(stream), expected), 5e-6);
}

TEST(GpuConvert, RoundsToNearestEvenAsTheCpu) {
  std::vector<float> values = normal_values(1003, 1, 100.0F);
  for (const float special :
       {0.0F, -0.0F, INFINITY, -INFINITY, 1e-40F, 65519.0F, 65520.0F, 6e-8F}) {
    values.push_back(special);
  }
  std::vector<bf16> as_bf16;
  std::vector<f16> as_f16;
  for (const float value : values) {
    as_bf16.push_back(to_bf16(value));
    as_f16.push_back(to_f16(value));
  }
  device::Stream stream;
  const auto count = static_cast<std::int64_t>(values.size());
  const DeviceArray<float> source(values, stream), back(values.size());
  const DeviceArray<bf16> bf16s(values.size());
  const DeviceArray<f16> f16s(values.size());
  kernels::convert(source.data(), bf16s.data(), count, stream);
  kernels::convert(source.data(), f16s.data(), count, stream);
  EXPECT_TRUE(same_bits(bf16s.download(stream), as_bf16));
  EXPECT_TRUE(same_bits(f16s.download(stream), as_f16));
  kernels::convert(f16s.data(), back.data(), count, stream);
  std::vector<float> widened;
  for (const f16 value : as_f16) widened.push_back(to_float(value));
  EXPECT_TRUE(same_bits(back.download(stream), widened));
}

kernels::AdamW options_of_step(std::int64_t step) {
  return {.lr = 3e-4, .weight_decay = 0.1, .gradient_scale = 0.5, .step = step};
}

TEST(GpuAdamW, MasterWeightsGetTheBitsOfThePlainVersion) {
  constexpr std::int64_t kCount = 1003;
  std::vector<float> weight = normal_values(kCount, 1), m(kCount, 0.0F), v(kCount, 0.0F);
  device::Stream stream;
  const DeviceArray<float> g_weight(weight, stream), g_m(m, stream), g_v(v, stream);
  const DeviceArray<bf16> working(kCount);
  for (std::int64_t step = 1; step <= 3; ++step) {
    const auto gradient = normal_values(kCount, static_cast<std::uint32_t>(10 + step));
    const DeviceArray<float> g_gradient(gradient, stream);
    kernels::adamw_plain<float>().step(options_of_step(step), kCount, gradient.data(),
                                       weight.data(), m.data(), v.data());
    kernels::adamw<float>(options_of_step(step), kCount, g_gradient.data(), g_weight.data(),
                          g_m.data(), g_v.data(), working.data(), stream);
    stream.synchronize();  // the gradient's memory ends here
  }
  EXPECT_TRUE(same_bits(g_weight.download(stream), weight));
  EXPECT_TRUE(same_bits(g_m.download(stream), m));
  EXPECT_TRUE(same_bits(g_v.download(stream), v));
  EXPECT_TRUE(same_bits(working.download(stream), from_floats<bf16>(weight)));
}

TEST(GpuAdamW, StochasticRoundingKeepsTheExpectationAndHasTheBitsOfTheCpu) {
  // All weights 1 and all gradients equal: the update, lr (1 + decay), is a fifth of the distance
  // to the next lower bf16, 2^-8. Nearest rounding would never move.
  constexpr std::int64_t kCount = 20000;
  kernels::AdamW options = {.lr = 0.2 / 256, .weight_decay = 0.0, .step = 1};
  device::Stream stream;
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    const auto count = static_cast<std::size_t>(end - begin);
    const DeviceArray<float> gradient(std::vector<float>(count, 1.0F), stream);
    const DeviceArray<float> m(std::vector<float>(count, 0.0F), stream),
        v(m.download(stream), stream);
    const DeviceArray<bf16> weight(std::vector<bf16>(count, to_bf16(1.0F)), stream);
    kernels::adamw_stochastic<float>(options, {.seed = 3, .purpose = 5, .stream = 1}, begin,
                                     end - begin, gradient.data(), weight.data(), m.data(),
                                     v.data(), stream);
    return weight.download(stream);
  };
  const auto whole = run(0, kCount);
  double mean = 0;
  for (const bf16 weight : whole) mean += static_cast<double>(to_float(weight)) / kCount;
  // The standard deviation of the mean of 20,000 such coins is 2^-8 * 0.4 / 141.
  EXPECT_NEAR(mean, 1 - 0.2 / 256, 5 * 0.4 / 256 / 141);
  std::vector<float> gradient(kCount, 1.0F), m(kCount, 0.0F), v(kCount, 0.0F);
  std::vector<bf16> host(kCount, to_bf16(1.0F));
  kernels::mixed_adamw_plain().stochastic(options, {.seed = 3, .purpose = 5, .stream = 1}, 0,
                                          kCount, gradient.data(), host.data(), m.data(), v.data());
  EXPECT_TRUE(same_bits(whole, host));
  for (const std::int64_t begin : {7001, 7004}) {
    const auto part = run(begin, 9002);
    for (std::size_t i = 0; i < part.size(); ++i)
      EXPECT_EQ(part[i].bits, whole[static_cast<std::size_t>(begin) + i].bits);
  }
}

TYPED_TEST(GpuElementwise, DropoutDropsWhatTheCpuDrops) {
  constexpr std::size_t kRows = 6;
  constexpr std::size_t kChannels = 150;
  const kernels::RandomStream random = {.seed = 9, .purpose = 4, .stream = 11};
  const auto x = from_floats<TypeParam>(normal_values(kRows * kChannels, 1));
  std::vector<TypeParam> expected(x.size());
  const kernels::DropoutShape shape = {kRows, kChannels, 3, 0, kChannels};
  kernels::dropout_plain<TypeParam>().assign(random, kernels::drop_threshold(0.25),
                                             static_cast<float>(kernels::keep_factor(0x4000)),
                                             shape, x.data(), expected.data());
  for_each_schedule(
      [&](device::Stream& stream) {
        const DeviceArray<TypeParam> whole(x, stream);
        kernels::dropout<TypeParam>(random, 0.25, shape, whole.data(), whole.data(), stream);
        EXPECT_TRUE(same_bits(whole.download(stream), expected));
        // Rows 2 to 4, channels 13 to 141.
        std::vector<TypeParam> part, expected_part;
        for (std::size_t r = 2; r < 5; ++r) {
          for (std::size_t c = 13; c < 142; ++c) {
            part.push_back(x[r * kChannels + c]);
            expected_part.push_back(expected[r * kChannels + c]);
          }
        }
        const DeviceArray<TypeParam> g_part(part, stream);
        kernels::dropout<TypeParam>(random, 0.25, {3, 129, 5, 13, kChannels}, g_part.data(),
                                    g_part.data(), stream);
        EXPECT_TRUE(same_bits(g_part.download(stream), expected_part));
      },
      1);
}

}  // namespace
}  // namespace sinew
