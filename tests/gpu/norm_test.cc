// Layer norm and RMS norm on the device against f64 references, under every schedule.
#include "kernels/device/column_sums.h"
#include "kernels/layer_norm.h"
#include "kernels/layer_norm_gpu.h"
#include "kernels/rms_norm_gpu.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/scenarios.h"

namespace sinew {
namespace {

using namespace testing;
using kernels::NormShape;
using kernels::Write;

template <typename T>
std::vector<T> normal(std::int64_t count, std::uint32_t seed) {
  return from_floats<T>(normal_values(static_cast<std::size_t>(count), seed));
}

template <typename T>
class GpuNorm : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(GpuNorm, Types);

// One channel makes the normed value 0 and every error relative to nothing: covered by RMS norm.
constexpr NormShape kShapes[] = {{3, 31}, {2, 64}, {5, 200}, {2, 768}, {1030, 8}};

TYPED_TEST(GpuNorm, LayerNormForwardEqualsTheCpu) {
  for (const NormShape shape : kShapes) {
    SCOPED_TRACE(std::to_string(shape.rows) + "x" + std::to_string(shape.channels));
    const auto size = static_cast<std::size_t>(shape.rows * shape.channels);
    const auto x = normal<TypeParam>(shape.rows * shape.channels, 1);
    const auto weight = normal<TypeParam>(shape.channels, 2);
    const auto bias = normal<TypeParam>(shape.channels, 3);
    std::vector<double> y(size), mean(static_cast<std::size_t>(shape.rows)), rstd(mean);
    kernels::layer_norm_forward<double>(shape, as_doubles(x).data(), as_doubles(weight).data(),
                                        as_doubles(bias).data(), 1e-5, y.data(), mean.data(),
                                        rstd.data());
    for_each_schedule(
        [&](device::Stream& stream) {
          const DeviceArray<TypeParam> d_x(x, stream), d_weight(weight, stream),
              d_bias(bias, stream);
          const DeviceArray<float> d_mean(mean.size()), d_rstd(mean.size());
          // In place: the most aliasing that is allowed.
          kernels::layer_norm_forward<TypeParam>(shape, d_x.data(), d_weight.data(), d_bias.data(),
                                                 1e-5F, d_x.data(), d_mean.data(), d_rstd.data(),
                                                 stream);
          EXPECT_LT(relative_error(d_x.download(stream), y), kRoundingError<TypeParam>);
          EXPECT_LT(relative_error(d_mean.download(stream), mean), 2e-6);
          EXPECT_LT(relative_error(d_rstd.download(stream), rstd), 2e-6);
        },
        1);
  }
}

TYPED_TEST(GpuNorm, LayerNormBackwardEqualsTheCpu) {
  for (const NormShape shape : kShapes) {
    SCOPED_TRACE(std::to_string(shape.rows) + "x" + std::to_string(shape.channels));
    const auto rows = static_cast<std::size_t>(shape.rows);
    const auto channels = static_cast<std::size_t>(shape.channels);
    const auto x = normal<TypeParam>(shape.rows * shape.channels, 1);
    const auto d_y = normal<TypeParam>(shape.rows * shape.channels, 2);
    const auto weight = normal<TypeParam>(shape.channels, 3);
    const auto start = normal<TypeParam>(shape.rows * shape.channels, 4);
    std::vector<double> y(x.size()), mean(rows), rstd(rows), d_x = as_doubles(start);
    std::vector<double> d_weight(channels, 1.0), d_bias(channels, -1.0), zero(channels);
    kernels::layer_norm_forward<double>(shape, as_doubles(x).data(), as_doubles(weight).data(),
                                        zero.data(), 1e-5, y.data(), mean.data(), rstd.data());
    kernels::layer_norm_backward<double>(
        shape, as_doubles(d_y).data(), as_doubles(x).data(), as_doubles(weight).data(), mean.data(),
        rstd.data(), Write::kAccumulate, d_x.data(), d_weight.data(), d_bias.data());
    for_each_schedule(
        [&](device::Stream& stream) {
          const DeviceArray<TypeParam> g_x(x, stream), g_d_y(d_y, stream), g_weight(weight, stream);
          const DeviceArray<TypeParam> g_d_x(start, stream);
          const DeviceArray<float> g_mean(std::vector<float>(mean.begin(), mean.end()), stream);
          const DeviceArray<float> g_rstd(std::vector<float>(rstd.begin(), rstd.end()), stream);
          const DeviceArray<float> g_d_weight(std::vector<float>(channels, 1.0F), stream);
          const DeviceArray<float> g_d_bias(std::vector<float>(channels, -1.0F), stream);
          const DeviceArray<float> workspace(
              static_cast<std::size_t>(kernels::layer_norm_backward_workspace(shape)));
          kernels::layer_norm_backward<TypeParam>(shape, g_d_y.data(), g_x.data(), g_weight.data(),
                                                  g_mean.data(), g_rstd.data(), Write::kAccumulate,
                                                  g_d_x.data(), g_d_weight.data(), g_d_bias.data(),
                                                  workspace.data(), stream);
          EXPECT_LT(relative_error(g_d_x.download(stream), d_x), kRoundingError<TypeParam>);
          EXPECT_LT(relative_error(g_d_weight.download(stream), d_weight), 5e-6);
          EXPECT_LT(relative_error(g_d_bias.download(stream), d_bias), 5e-6);
        },
        1);
  }
}

struct RmsReference {
  std::vector<double> y, rstd, d_x, d_weight;
};

RmsReference rms_reference(NormShape shape, const std::vector<double>& x,
                           const std::vector<double>& weight, const std::vector<double>& d_y) {
  RmsReference result;
  result.d_weight.assign(weight.size(), 0.0);
  const std::size_t channels = weight.size();
  for (std::size_t r = 0; r < static_cast<std::size_t>(shape.rows); ++r) {
    const double* row = x.data() + r * channels;
    const double* gradient = d_y.data() + r * channels;
    double squares = 0;
    for (std::size_t c = 0; c < channels; ++c) squares += row[c] * row[c];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(channels) + 1e-5);
    double mean = 0;
    for (std::size_t c = 0; c < channels; ++c) {
      mean += gradient[c] * weight[c] * row[c] * rstd / static_cast<double>(channels);
    }
    result.rstd.push_back(rstd);
    for (std::size_t c = 0; c < channels; ++c) {
      result.y.push_back(row[c] * rstd * weight[c]);
      result.d_x.push_back(rstd * (gradient[c] * weight[c] - row[c] * rstd * mean));
      result.d_weight[c] += gradient[c] * row[c] * rstd;
    }
  }
  return result;
}

TYPED_TEST(GpuNorm, RmsNormEqualsItsFormulas) {
  for (const NormShape shape : {NormShape{4, 1}, {3, 31}, {2, 264}, {1030, 8}}) {
    SCOPED_TRACE(std::to_string(shape.rows) + "x" + std::to_string(shape.channels));
    const auto x = normal<TypeParam>(shape.rows * shape.channels, 1);
    const auto d_y = normal<TypeParam>(shape.rows * shape.channels, 2);
    const auto weight = normal<TypeParam>(shape.channels, 3);
    const RmsReference expected =
        rms_reference(shape, as_doubles(x), as_doubles(weight), as_doubles(d_y));
    for_each_schedule(
        [&](device::Stream& stream) {
          const DeviceArray<TypeParam> g_x(x, stream), g_weight(weight, stream), g_y(x.size());
          const DeviceArray<TypeParam> gradient(d_y, stream);
          const DeviceArray<float> rstd(expected.rstd.size());
          const DeviceArray<float> d_weight(std::vector<float>(weight.size(), 0.0F), stream);
          const DeviceArray<float> workspace(
              static_cast<std::size_t>(kernels::rms_norm_backward_workspace(shape)));
          kernels::rms_norm_forward<TypeParam>(shape, g_x.data(), g_weight.data(), 1e-5F,
                                               g_y.data(), rstd.data(), stream);
          kernels::rms_norm_backward<TypeParam>(shape, gradient.data(), g_x.data(), g_weight.data(),
                                                rstd.data(), Write::kAssign, gradient.data(),
                                                d_weight.data(), workspace.data(), stream);
          EXPECT_LT(relative_error(g_y.download(stream), expected.y), kRoundingError<TypeParam>);
          EXPECT_LT(relative_error(rstd.download(stream), expected.rstd), 2e-6);
          // One channel: the gradient is what cancellation leaves.
          if (shape.channels > 1) {
            EXPECT_LT(relative_error(gradient.download(stream), expected.d_x),
                      kRoundingError<TypeParam>);
          }
          EXPECT_LT(relative_error(d_weight.download(stream), expected.d_weight), 5e-6);
        },
        1);
  }
}

// 48 KiB of rows beside the sums of the block: a device gives more than that only when asked.
TEST(GpuNormWidth, RowsMayFillWhatABlockHasWithoutAskingForMore) {
  device::Stream stream;
  const NormShape layer = {2, 6144};
  const NormShape rms = {2, 12288};
  const DeviceArray<bf16> d_y(std::vector<bf16>(2 * 12288), stream), x(2 * 12288), weight(12288),
      d_x(2 * 12288);
  const DeviceArray<float> mean(2), rstd(2), d_bias(12288),
      d_weight(std::vector<float>(12288, 1.0F), stream),
      workspace(static_cast<std::size_t>(std::max(kernels::layer_norm_backward_workspace(layer),
                                                  kernels::rms_norm_backward_workspace(rms))));
  stream.fill(x.data(), 0, 2 * 12288 * sizeof(bf16));
  stream.fill(weight.data(), 0, 12288 * sizeof(bf16));
  stream.fill(mean.data(), 0, 2 * sizeof(float));
  stream.fill(rstd.data(), 0, 2 * sizeof(float));
  kernels::layer_norm_backward<bf16>(layer, d_y.data(), x.data(), weight.data(), mean.data(),
                                     rstd.data(), Write::kAssign, d_x.data(), d_weight.data(),
                                     d_bias.data(), workspace.data(), stream);
  kernels::rms_norm_backward<bf16>(rms, d_y.data(), x.data(), weight.data(), rstd.data(),
                                   Write::kAssign, d_x.data(), d_weight.data(), workspace.data(),
                                   stream);
  EXPECT_EQ(d_weight.download(stream), std::vector<float>(12288, 1.0F));
}

TYPED_TEST(GpuNorm, ColumnSumsAddEveryRowOnce) {
  for (const NormShape shape : {NormShape{1, 1}, {100, 33}, {300, 70}}) {
    const auto x = normal<TypeParam>(shape.rows * (shape.channels + 2), 5);
    std::vector<double> expected(static_cast<std::size_t>(shape.channels), 2.0);
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        const auto place = static_cast<std::size_t>(r * (shape.channels + 2) + c);
        expected[static_cast<std::size_t>(c)] += static_cast<double>(as_float(x[place]));
      }
    }
    for_each_schedule(
        [&](device::Stream& stream) {
          const DeviceArray<TypeParam> g_x(x, stream);
          const DeviceArray<float> sums(std::vector<float>(expected.size(), 2.0F), stream);
          const DeviceArray<float> workspace(
              static_cast<std::size_t>(kernels::column_sums_workspace(shape.rows, shape.channels)));
          kernels::column_sums<TypeParam>(
              {g_x.data(), shape.rows, shape.channels, shape.channels + 2}, sums.data(),
              workspace.data(), stream);
          EXPECT_LT(relative_error(sums.download(stream), expected), 5e-6);
        },
        1);
  }
}

}  // namespace

bool testing::layer_norm_scenario(device::Stream& stream) {
  constexpr NormShape kShape = {3, 70};
  const auto x = normal_values(210, 1);
  const std::vector<float> weight(70, 1.0F), bias(70, 0.0F);
  std::vector<float> y(x.size()), mean(3), rstd(3);
  kernels::layer_norm_forward<float>(kShape, x.data(), weight.data(), bias.data(), 1e-5F, y.data(),
                                     mean.data(), rstd.data());
  const DeviceArray<float> g_x(x, stream), g_weight(weight, stream), g_bias(bias, stream);
  const DeviceArray<float> g_y(x.size()), g_mean(3), g_rstd(3);
  kernels::layer_norm_forward<float>(kShape, g_x.data(), g_weight.data(), g_bias.data(), 1e-5F,
                                     g_y.data(), g_mean.data(), g_rstd.data(), stream);
  return relative_error(g_y.download(stream), y) < 2e-6;
}

bool testing::norm_backward_scenario(device::Stream& stream) {
  constexpr NormShape kShape = {4, 70};
  const auto x = normal_values(280, 1);
  const auto d_y = normal_values(280, 2);
  const std::vector<float> weight(70, 1.0F);
  const RmsReference expected =
      rms_reference(kShape, as_doubles(x), as_doubles(weight), as_doubles(d_y));
  const DeviceArray<float> g_x(x, stream), g_d_y(d_y, stream), g_weight(weight, stream);
  const DeviceArray<float> y(x.size()), rstd(4), d_weight(std::vector<float>(70, 0.0F), stream);
  const DeviceArray<float> workspace(
      static_cast<std::size_t>(kernels::rms_norm_backward_workspace(kShape)));
  kernels::rms_norm_forward<float>(kShape, g_x.data(), g_weight.data(), 1e-5F, y.data(),
                                   rstd.data(), stream);
  kernels::rms_norm_backward<float>(kShape, g_d_y.data(), g_x.data(), g_weight.data(), rstd.data(),
                                    Write::kAssign, g_d_y.data(), d_weight.data(), workspace.data(),
                                    stream);
  return relative_error(g_d_y.download(stream), expected.d_x) < 2e-6 &&
         relative_error(d_weight.download(stream), expected.d_weight) < 5e-6;
}

bool testing::column_sums_scenario(device::Stream& stream) {
  const DeviceArray<float> x(std::vector<float>(20 * 40, 0.5F), stream);
  const DeviceArray<float> sums(std::vector<float>(40, 0.0F), stream);
  kernels::column_sums<float>({x.data(), 20, 40, 40}, sums.data(), nullptr, stream);
  return sums.download(stream) == std::vector<float>(40, 10.0F);
}

}  // namespace sinew
