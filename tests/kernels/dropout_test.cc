// Laws of dropout and of the random bits it draws: the mask depends on seed, purpose, stream and
// global index only; any part of the matrix, any version and any thread count draw the same one.
#include "kernels/dropout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <utility>

#include "kernels/registry.h"
#include "kernels/streaming.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

// Each word of the 16 counters of a block serves two elements, and no two elements of it share
// bits.
TEST(RandomBits, FollowTheStatedMappingAndUseEveryBitOnce) {
  const RandomStream random{123, 5, 9};
  for (const std::int64_t block : {std::int64_t{0}, std::int64_t{3}, std::int64_t{1} << 29}) {
    std::set<std::pair<std::uint64_t, int>> halves;
    for (std::int64_t place = 0; place < 128; ++place) {
      const auto counter = static_cast<std::uint64_t>(block * 16 + place / 64 * 8 + place % 32 / 4);
      const auto word = static_cast<int>((place % 64 < 32 ? 1 : 3) - (place % 4 < 2 ? 0 : 1));
      const std::uint32_t drawn = Philox(123, 5).words(counter, 9)[static_cast<std::size_t>(word)];
      EXPECT_EQ(random_bits(random, block * 128 + place),
                place % 2 == 0 ? drawn & 0xffffU : drawn >> 16);
      halves.emplace(counter, word * 2 + static_cast<int>(place % 2));
    }
    EXPECT_EQ(halves.size(), 128U);
  }
  // Streams, purposes and seeds differ: of 128 elements, two agree by chance in 1 of 512 runs.
  for (const RandomStream& other :
       {RandomStream{124, 5, 9}, RandomStream{123, 6, 9}, RandomStream{123, 5, 10}}) {
    int equal = 0;
    for (std::int64_t i = 0; i < 128; ++i)
      equal += random_bits(random, i) == random_bits(other, i) ? 1 : 0;
    EXPECT_LE(equal, 2);
  }
}

template <typename T>
class DropoutVersions : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(DropoutVersions, Types);

TYPED_TEST(DropoutVersions, AnyPartOfTheMatrixDropsByGlobalIndex) {
  using T = TypeParam;
  // A stream above 32 bits, and rows whose global index passes 2^36, where the counter passes 32
  // bits.
  const RandomStream random{77, 3, (std::uint64_t{5} << 32) + 1};
  for (const auto& version : versions_of<DropoutFunctions<T>>()) {
    std::mt19937_64 values(1);
    for (const std::int64_t first_row :
         {std::int64_t{0}, std::int64_t{7}, (std::int64_t{1} << 36) / 1000}) {
      for (const std::int64_t columns : {0, 1, 15, 16, 31, 33, 64, 100, 257}) {
        for (const std::int64_t first_column : {0, 5, 64}) {
          const DropoutShape shape{3, columns, first_row, first_column, 1000};
          const auto x = normal_values<T>(3 * columns, values, 1.0, 1);
          const auto target = normal_values<T>(3 * columns, values, 1.0, 2);
          const std::uint32_t threshold = drop_threshold(0.3);
          const auto factor = static_cast<float>(keep_factor(threshold));
          Guarded<T> y(3 * columns, 3);
          Guarded<T> sum = target;
          version.functions->assign(random, threshold, factor, shape, x.data(), y.data());
          version.functions->add(random, threshold, factor, shape, x.data(), sum.data());
          EXPECT_TRUE(y.is_intact() && sum.is_intact());
          for (std::int64_t i = 0; i < 3 * columns; ++i) {
            const std::int64_t index =
                (first_row + i / columns) * 1000 + first_column + i % columns;
            const bool keeps = random_bits(random, index) >= threshold;
            const float value = keeps ? widen(x[i]) * factor : 0.0F;
            ASSERT_EQ(exact(y[i]), exact(narrow<T>(value))) << version.version << " " << i;
            ASSERT_EQ(exact(sum[i]), exact(narrow<T>(widen(target[i]) + value)));
          }
          Guarded<T> in_place = x;
          version.functions->assign(random, threshold, factor, shape, in_place.data(),
                                    in_place.data());
          EXPECT_EQ(exact(in_place), exact(y));
        }
      }
    }
  }
}

TEST(Dropout, TheFactorMakesTheMeanExactForEveryProbability) {
  for (const double probability : {0.0, 1e-9, 0.1, 0.5, 0.999999, 0.99999999}) {
    const std::uint32_t threshold = drop_threshold(probability);
    EXPECT_NEAR(threshold * 0x1p-16, probability, 0x1p-16);
    EXPECT_LT(threshold, 65536U);
    // Of 2^16 equally likely bits, 2^16 - threshold keep.
    EXPECT_DOUBLE_EQ(keep_factor(threshold) * (0x1p16 - threshold) * 0x1p-16, 1.0);
  }
}

// Outputs that bypass the cache hold what those that do not hold.
TYPED_TEST(DropoutVersions, LargeOutputsHoldTheSameBits) {
  using T = TypeParam;
  const std::int64_t columns = 1024;
  const std::int64_t rows =
      cpu().l3_bytes / (columns * static_cast<std::int64_t>(sizeof(T))) / 4 + 3;
  std::mt19937_64 values(4);
  const auto x = normal_values<T>(rows * columns, values, 1.0, 0);
  for (const auto& version : versions_of<DropoutFunctions<T>>()) {
    if (version.version == "plain") continue;
    std::vector<T> large(static_cast<std::size_t>(rows * columns) + 64);
    T* y = large.data() + elements_to_alignment(large.data(), 64);
    version.functions->assign({1, 2, 3}, 20000, 1.5F, {rows, columns, 2, 64, 2048}, x.data(), y);
    std::vector<T> row(columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      version.functions->assign({1, 2, 3}, 20000, 1.5F, {1, columns, 2 + r, 64, 2048},
                                x.data() + r * columns, row.data());
      ASSERT_EQ(std::memcmp(row.data(), y + r * columns, row.size() * sizeof(T)), 0)
          << version.version << " " << r;
    }
  }
}

TEST(Dropout, KeepsTheStatedShareAndTheMean) {
  const std::int64_t count = 100000;
  std::vector<float> x(count, 1.0F), y(count);
  for (const double probability : {0.0, 0.1, 0.5, 0.9}) {
    dropout<float>({1, 2, 3}, probability, {1, count, 0, 0, count}, x.data(), y.data());
    double sum = 0;
    double kept = 0;
    for (const float value : y) {
      sum += value;
      kept += value != 0;
    }
    // Five standard deviations of a binomial share.
    const double deviation =
        std::sqrt(probability * (1 - probability) / static_cast<double>(count));
    EXPECT_NEAR(kept / static_cast<double>(count), 1 - probability, 5 * deviation);
    EXPECT_NEAR(sum / static_cast<double>(count), 1.0, 5 * deviation / (1 - probability) + 1e-6);
  }
}

TEST(Dropout, ColumnShardsOfEveryWidthMakeTheWholeMask) {
  const std::int64_t rows = 5;
  const std::int64_t columns = 96;
  std::vector<double> x(rows * columns, 2.0), whole(x.size()), part(x.size());
  const RandomStream random{9, 9, 9};
  dropout<double>(random, 0.4, {rows, columns, 10, 0, columns}, x.data(), whole.data());
  for (const std::int64_t width : {1, 32, 48}) {
    for (std::int64_t first = 0; first < columns; first += width) {
      dropout<double>(random, 0.4, {rows, width, 10, first, columns}, x.data(), part.data());
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < width; ++c) {
          EXPECT_EQ(part[static_cast<std::size_t>(r * width + c)],
                    whole[static_cast<std::size_t>(r * columns + first + c)]);
        }
      }
    }
  }
}

// Backward is the derivative: the map is linear with the mask times the factor as its slope.
TEST(Dropout, BackwardIsTheDerivative) {
  const DropoutShape shape{2, 9, 0, 0, 9};
  const RandomStream random{4, 4, 4};
  std::mt19937_64 values(2);
  auto x = exact(normal_values<double>(18, values));
  const auto d_y = exact(normal_values<double>(18, values));
  std::vector<double> y(18), d_x(18);
  dropout<double>(random, 0.5, shape, d_y.data(), d_x.data());
  for (std::size_t i = 0; i < 18; ++i) {
    EXPECT_NEAR(d_x[i],
                difference(&x[i],
                           [&] {
                             dropout<double>(random, 0.5, shape, x.data(), y.data());
                             double sum = 0;
                             for (std::size_t j = 0; j < 18; ++j) sum += y[j] * d_y[j];
                             return sum;
                           }),
                1e-9);
  }
}

TEST(Dropout, ThreadCountChangesNoBits) {
  std::mt19937_64 values(3);
  const DropoutShape shape{150, 1021, 3, 5, 2000};
  const auto x = normal_values<float>(150 * 1021, values);
  ThreadPool pool(3);
  std::vector<std::vector<double>> results;
  for (const Threads threads : {Threads{}, Threads{2, nullptr}, Threads{3, &pool}}) {
    Guarded<float> y(150 * 1021);
    dropout({1, 1, 1}, 0.1, shape, x.data(), y.data(), threads);
    results.push_back(exact(y));
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

}  // namespace
}  // namespace sinew::kernels
