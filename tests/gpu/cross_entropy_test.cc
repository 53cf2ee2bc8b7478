// Cross entropy on the device against the CPU's, whole and with the vocabulary cut over ranks.
#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/cross_entropy_gpu.h"
#include "tests/gpu/device_array.h"

namespace sinew {
namespace {

using namespace testing;
using kernels::CrossEntropyShape;

template <typename T>
class GpuCrossEntropy : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(GpuCrossEntropy, Types);

template <typename T>
void test_part(const CrossEntropyShape& shape, const std::vector<std::int32_t>& targets) {
  const auto rows = static_cast<std::size_t>(shape.rows);
  const auto logits =
      from_floats<T>(normal_values(static_cast<std::size_t>(shape.rows * shape.columns), 1, 4.0F));
  std::vector<double> expected = as_doubles(logits);
  std::vector<double> row_max(rows), sum_exp(rows), target_logit(rows), loss(rows);
  kernels::cross_entropy_max<double>(shape, expected.data(), row_max.data());
  for (double& value : row_max)
    value = std::max(value, 3.0);  // another rank's part has the maximum
  kernels::cross_entropy_sums<double>(shape, expected.data(), targets.data(), row_max.data(),
                                      sum_exp.data(), target_logit.data());
  std::vector<double> sum_all = sum_exp;
  for (double& value : sum_all) value += 2.0;  // and adds to the sums
  kernels::cross_entropy_loss<double>(shape.rows, targets.data(), sum_all.data(),
                                      target_logit.data(), loss.data());
  kernels::cross_entropy_backward<double>(shape, expected.data(), targets.data(), row_max.data(),
                                          sum_all.data(), 0.25);
  for_each_schedule(
      [&](device::Stream& stream) {
        const DeviceArray<T> g_logits(logits, stream);
        const DeviceArray<std::int32_t> g_targets(targets, stream);
        const DeviceArray<float> own_max(rows), sum(rows), target(rows), g_loss(rows);
        const auto to_floats = [](const std::vector<double>& values) {
          return std::vector<float>(values.begin(), values.end());
        };
        kernels::cross_entropy_max<T>(shape, g_logits.data(), own_max.data(), stream);
        for (std::size_t r = 0; r < rows; ++r) {
          EXPECT_EQ(std::max(own_max.download(stream)[r], 3.0F), static_cast<float>(row_max[r]));
        }
        const DeviceArray<float> maximum(to_floats(row_max), stream),
            total(to_floats(sum_all), stream);
        kernels::cross_entropy_sums<T>(shape, g_logits.data(), g_targets.data(), maximum.data(),
                                       sum.data(), target.data(), stream);
        kernels::cross_entropy_loss(shape.rows, g_targets.data(), total.data(), target.data(),
                                    g_loss.data(), stream);
        kernels::cross_entropy_backward<T>(shape, g_logits.data(), g_targets.data(), maximum.data(),
                                           total.data(), 0.25F, stream);
        // f32 exponentials: a few units in the last place of each term.
        EXPECT_LT(relative_error(sum.download(stream), sum_exp), 2e-6);
        EXPECT_LT(relative_error(target.download(stream), target_logit), 2e-6);
        EXPECT_LT(relative_error(g_loss.download(stream), loss), 2e-6);
        EXPECT_LT(relative_error(g_logits.download(stream), expected), kRoundingError<T>);
      },
      1);
}

TYPED_TEST(GpuCrossEntropy, EachPartOfTheVocabularyEqualsTheCpu) {
  const std::vector<std::int32_t> targets = {5, -1, 40, 70, 64};
  test_part<TypeParam>({5, 80, 0, 75}, targets);    // padded at the end
  test_part<TypeParam>({5, 37, 37, 75}, targets);   // a middle part, odd
  test_part<TypeParam>({5, 64, 64, 75}, targets);   // a last part, mostly padding
  test_part<TypeParam>({5, 600, 0, 600}, targets);  // more than a turn of the block
}

TYPED_TEST(GpuCrossEntropy, APartWithoutAColumnAndNoNumberAreKept) {
  device::Stream stream;
  const CrossEntropyShape padding = {1, 16, 96, 75};
  const auto nan = from_float<TypeParam>(NAN);
  std::vector<TypeParam> row(16, from_float<TypeParam>(1.0F));
  const DeviceArray<TypeParam> logits(row, stream);
  const DeviceArray<float> maximum(1);
  kernels::cross_entropy_max<TypeParam>(padding, logits.data(), maximum.data(), stream);
  EXPECT_EQ(maximum.download(stream)[0], -std::numeric_limits<float>::infinity());
  row[7] = nan;
  const DeviceArray<TypeParam> broken(row, stream);
  kernels::cross_entropy_max<TypeParam>({1, 16, 0, 16}, broken.data(), maximum.data(), stream);
  EXPECT_TRUE(std::isnan(maximum.download(stream)[0]));
}

}  // namespace
}  // namespace sinew
