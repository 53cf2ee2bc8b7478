// Laws of the element-wise kernels and the embedding: sums in the stated order, so every version
// gives the plain version's bits.
#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include "kernels/embedding.h"
#include "kernels/registry.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

template <typename T>
class ElementwiseVersions : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(ElementwiseVersions, Types);

TYPED_TEST(ElementwiseVersions, AddRoundsTheExactSumOnce) {
  using T = TypeParam;
  for (const auto& version : versions_of<ElementwiseFunctions<T>>()) {
    std::mt19937_64 random(1);
    for (std::int64_t count = 0; count < 100; ++count) {
      Guarded<T> target = normal_values<T>(count, random, 1.0, count % 7);
      const auto before = exact(target);
      const auto source = normal_values<T>(count, random, 1.0, count % 3);
      version.functions->add(target.data(), source.data(), count);
      EXPECT_TRUE(target.is_intact());
      for (std::int64_t i = 0; i < count; ++i) {
        const double sum = before[static_cast<std::size_t>(i)] + exact(source[i]);
        EXPECT_EQ(exact(target[i]), exact(narrow<T>(static_cast<float>(sum))));
      }
    }
  }
}

TYPED_TEST(ElementwiseVersions, BiasAndItsGradientGiveThePlainBits) {
  using T = TypeParam;
  const auto& plain = elementwise_plain<T>();
  for (const auto& version : versions_of<ElementwiseFunctions<T>>()) {
    std::mt19937_64 random(2);
    for (const std::int64_t rows : {0, 1, 2, 9}) {
      for (const std::int64_t channels : {0, 1, 15, 16, 17, 64, 65, 130, 257}) {
        const auto y = normal_values<T>(rows * channels, random, 1.0, 1);
        const auto bias = normal_values<T>(channels, random, 1.0, 2);
        Guarded<T> found = y;
        Guarded<T> expected = y;
        version.functions->add_bias(found.data(), bias.data(), rows, channels);
        plain.add_bias(expected.data(), bias.data(), rows, channels);
        EXPECT_EQ(exact(found), exact(expected));
        EXPECT_TRUE(found.is_intact());

        Guarded<Wide<T>> d_bias = normal_values<Wide<T>>(channels, random, 1.0, 3);
        Guarded<Wide<T>> d_expected = d_bias;
        const std::int64_t middle = channels / 3;
        version.functions->bias_backward(y.data(), d_bias.data(), rows, channels, 0, middle);
        version.functions->bias_backward(y.data(), d_bias.data(), rows, channels, middle, channels);
        plain.bias_backward(y.data(), d_expected.data(), rows, channels, 0, channels);
        EXPECT_EQ(exact(d_bias), exact(d_expected));
        EXPECT_TRUE(d_bias.is_intact());
      }
    }
  }
}

TYPED_TEST(ElementwiseVersions, SumOfSquaresGivesThePlainBitsAndTheExactValue) {
  using T = TypeParam;
  for (const auto& version : versions_of<ElementwiseFunctions<T>>()) {
    std::mt19937_64 random(3);
    for (std::int64_t count = 0; count < 1500; count = count < 140 ? count + 1 : count + 123) {
      const auto values = normal_values<T>(count, random, 1e3, count % 9);
      const double found = version.functions->sum_of_squares(values.data(), count);
      EXPECT_EQ(found, elementwise_plain<T>().sum_of_squares(values.data(), count));
      long double sum = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        sum += static_cast<long double>(exact(values[i])) * exact(values[i]);
      }
      EXPECT_NEAR(found, static_cast<double>(sum),
                  static_cast<double>(sum) * 0x1p-53 * (static_cast<double>(count) / 32 + 6));
    }
  }
}

TYPED_TEST(ElementwiseVersions, EmbeddingGivesThePlainBitsForEveryPartOfTheTable) {
  using T = TypeParam;
  const auto& plain = embedding_plain<T>();
  for (const auto& version : versions_of<EmbeddingFunctions<T>>()) {
    std::mt19937_64 random(4);
    for (const std::int64_t channels : {1, 15, 16, 33, 64}) {
      for (const std::int64_t first_row : {0, 5}) {
        const EmbeddingShape shape{2, 7, channels, first_row, 6};
        std::vector<std::int32_t> tokens;
        for (int i = 0; i < 14; ++i) tokens.push_back(static_cast<std::int32_t>(random() % 12));
        const auto table = normal_values<T>(6 * channels, random, 1.0, 1);
        const auto positions = normal_values<T>(7 * channels, random, 1.0, 2);
        const auto d_y = normal_values<T>(14 * channels, random, 1.0, 3);
        for (const bool with_positions : {false, true}) {
          const T* position = with_positions ? positions.data() : nullptr;
          Guarded<T> y(14 * channels, 1), expected(14 * channels);
          version.functions->forward(shape, tokens.data(), table.data(), position, y.data(), 0, 5);
          version.functions->forward(shape, tokens.data(), table.data(), position, y.data(), 5, 14);
          plain.forward(shape, tokens.data(), table.data(), position, expected.data(), 0, 14);
          EXPECT_EQ(exact(y), exact(expected));
          EXPECT_TRUE(y.is_intact());

          Guarded<Wide<T>> d_table(6 * channels, 1), d_positions(7 * channels, 2);
          Guarded<Wide<T>> e_table(6 * channels), e_positions(7 * channels);
          Wide<T>* d_position = with_positions ? d_positions.data() : nullptr;
          Wide<T>* e_position = with_positions ? e_positions.data() : nullptr;
          version.functions->backward(shape, tokens.data(), d_y.data(), d_table.data(), d_position,
                                      0, channels / 2);
          version.functions->backward(shape, tokens.data(), d_y.data(), d_table.data(), d_position,
                                      channels / 2, channels);
          plain.backward(shape, tokens.data(), d_y.data(), e_table.data(), e_position, 0, channels);
          EXPECT_EQ(exact(d_table), exact(e_table));
          EXPECT_EQ(exact(d_positions), exact(e_positions));
          EXPECT_TRUE(d_table.is_intact() && d_positions.is_intact());
        }
      }
    }
  }
}

// The plain embedding against its definition: parts of the table add up to the whole.
TEST(Embedding, RankPartsAddUpToTheWholeTable) {
  std::mt19937_64 random(5);
  const auto table = exact(normal_values<double>(10 * 3, random));
  const auto d_y = exact(normal_values<double>(8 * 3, random));
  const std::vector<std::int32_t> tokens = {0, 9, 4, 4, 5, 0, 7, 9};
  std::vector<double> y(24), part(24), d_table(30);
  for (const std::int64_t first : {0, 4}) {
    const EmbeddingShape shape{2, 4, 3, first, first == 0 ? 4 : 6};
    embedding_forward<double>(shape, tokens.data(), table.data() + first * 3, nullptr, part.data());
    for (std::size_t i = 0; i < 24; ++i) y[i] += part[i];
    embedding_backward<double>(shape, tokens.data(), d_y.data(), d_table.data() + first * 3,
                               nullptr);
  }
  std::vector<double> d_expected(30);
  for (std::size_t i = 0; i < 24; ++i) {
    const std::size_t cell = static_cast<std::size_t>(tokens[i / 3]) * 3 + i % 3;
    EXPECT_EQ(y[i], table[cell]);
    d_expected[cell] += d_y[i];
  }
  EXPECT_EQ(d_table, d_expected);
}

TEST(Elementwise, ThreadCountChangesNoBits) {
  std::mt19937_64 random(6);
  const std::int64_t rows = 300;
  const std::int64_t channels = 515;
  const auto y = normal_values<float>(rows * channels, random);
  const auto bias = normal_values<float>(channels, random);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < rows; ++i)
    tokens.push_back(static_cast<std::int32_t>(random() % 11));
  const EmbeddingShape shape{3, rows / 3, channels, 0, 11};
  ThreadPool pool(3);
  std::vector<std::vector<double>> results;
  for (const Threads threads : {Threads{}, Threads{2, nullptr}, Threads{3, &pool}}) {
    Guarded<float> sum = y;
    Guarded<float> d_bias(channels), d_table(11 * channels), embedded(rows * channels);
    add(sum.data(), y.data(), rows * channels, threads);
    add_bias(sum.data(), bias.data(), rows, channels, threads);
    bias_backward(sum.data(), d_bias.data(), rows, channels, threads);
    embedding_backward<float>(shape, tokens.data(), y.data(), d_table.data(), nullptr, threads);
    embedding_forward<float>(shape, tokens.data(), d_table.data(), nullptr, embedded.data(),
                             threads);
    for (const auto* out : {&sum, &d_bias, &d_table, &embedded}) results.push_back(exact(*out));
  }
  for (std::size_t i = 4; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 4]);
}

}  // namespace
}  // namespace sinew::kernels
