// Layer norm on the device against the CPU's in f64, under every schedule.
#include "kernels/layer_norm.h"

#include "kernels/layer_norm_gpu.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/scenarios.h"

namespace sinew {
namespace {

using namespace testing;

template <typename T>
void test_forward(std::int64_t rows, std::int64_t channels, double tolerance) {
  const auto size = static_cast<std::size_t>(rows * channels);
  const auto x = from_floats<T>(normal_values(size, 1));
  const auto weight = from_floats<T>(normal_values(static_cast<std::size_t>(channels), 2));
  const auto bias = from_floats<T>(normal_values(static_cast<std::size_t>(channels), 3));
  const auto widen = [](const std::vector<T>& values) {
    const auto floats = as_floats(values);
    return std::vector<double>(floats.begin(), floats.end());
  };
  std::vector<double> y(size), mean(static_cast<std::size_t>(rows)), rstd(mean);
  kernels::layer_norm_forward<double>({rows, channels}, widen(x).data(), widen(weight).data(),
                                      widen(bias).data(), 1e-5, y.data(), mean.data(), rstd.data());
  for_each_schedule([&](device::Stream& stream) {
    const DeviceArray<T> d_x(x, stream), d_weight(weight, stream), d_bias(bias, stream), d_y(size);
    const DeviceArray<float> d_mean(mean.size()), d_rstd(mean.size());
    kernels::layer_norm_forward<T>({rows, channels}, d_x.data(), d_weight.data(), d_bias.data(),
                                   1e-5F, d_y.data(), d_mean.data(), d_rstd.data(), stream);
    EXPECT_LT(relative_error(as_floats(d_y.download(stream)), {y.begin(), y.end()}), tolerance);
    EXPECT_LT(relative_error(d_mean.download(stream), {mean.begin(), mean.end()}), 1e-5);
    EXPECT_LT(relative_error(d_rstd.download(stream), {rstd.begin(), rstd.end()}), 1e-5);
  });
}

// A rounding to bf16 is at most 2^-9 of the value; in norm a third of that.
TEST(GpuLayerNorm, ForwardEqualsTheCpu) {
  for (const std::int64_t channels : {1, 31, 64, 200, 768}) {
    SCOPED_TRACE(channels);
    test_forward<float>(3, channels, 1e-6 + (channels == 1 ? 1 : 0));
    test_forward<bf16>(3, channels, 2.5e-3);
  }
}

}  // namespace

bool testing::layer_norm_scenario(device::Stream& stream) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kChannels = 70;
  const auto x = normal_values(kRows * kChannels, 1);
  const std::vector<float> weight(kChannels, 1.0F), bias(kChannels, 0.0F);
  std::vector<float> y(x.size()), mean(kRows), rstd(kRows);
  kernels::layer_norm_forward<float>({kRows, kChannels}, x.data(), weight.data(), bias.data(),
                                     1e-5F, y.data(), mean.data(), rstd.data());
  const DeviceArray<float> d_x(x, stream), d_weight(weight, stream), d_bias(bias, stream),
      d_y(x.size());
  const DeviceArray<float> d_mean(kRows), d_rstd(kRows);
  kernels::layer_norm_forward<float>({kRows, kChannels}, d_x.data(), d_weight.data(), d_bias.data(),
                                     1e-5F, d_y.data(), d_mean.data(), d_rstd.data(), stream);
  return relative_error(d_y.download(stream), y) < 1e-6;
}

}  // namespace sinew
