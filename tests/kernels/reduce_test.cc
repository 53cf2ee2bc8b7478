// Laws of the reductions.
#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sinew::kernels {
namespace {

TEST(Reduce, IntegersWrapAndAveragesTruncate) {
  std::vector<std::int32_t> a = {std::numeric_limits<std::int32_t>::max(), -7, 1 << 30};
  const std::vector<std::int32_t> b = {1, 2, 4};
  std::vector<std::int32_t> out(3);
  reduce(ReduceOp::kSum, DType::kI32, out.data(), a.data(), b.data(), 3);
  EXPECT_EQ(out, (std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min(), -5,
                                            (1 << 30) + 4}));
  reduce(ReduceOp::kProd, DType::kI32, out.data(), a.data(), b.data(), 3);
  EXPECT_EQ(out, (std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::max(), -14, 0}));
  scale(DType::kI32, a.data(), 3, 2);
  EXPECT_EQ(a[1], -3);
  std::vector<std::uint8_t> bytes = {200, 100, 255};
  reduce(ReduceOp::kSum, DType::kU8, bytes.data(), bytes.data(), bytes.data(), 3);
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{144, 200, 254}));
  scale(DType::kU8, bytes.data(), 3, 300);
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{0, 0, 0}));
}

TEST(Reduce, HalvesRoundToEvenOncePerCall) {
  // 1 + 2^-8 is a tie in bf16 (8 bits of precision): it rounds to the even neighbour 1.
  const std::vector<bf16> one = {to_bf16(1.0F)};
  const std::vector<bf16> half_ulp = {to_bf16(0x1p-8F)};
  std::vector<bf16> out(1);
  reduce(ReduceOp::kSum, DType::kBf16, out.data(), one.data(), half_ulp.data(), 1);
  EXPECT_EQ(to_float(out[0]), 1.0F);
  // Two halves of an ulp make a whole one when the sum is rounded once.
  const void* sources[] = {one.data(), half_ulp.data(), half_ulp.data()};
  reduce_many(ReduceOp::kSum, DType::kBf16, out.data(), sources, 1);
  EXPECT_EQ(to_float(out[0]), 1.0F + 0x1p-7F);
}

}  // namespace
}  // namespace sinew::kernels
