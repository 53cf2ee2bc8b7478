// Laws of the rotary embedding: every version within its bound of the rotation in f64, backward its
// inverse, scores that depend on distances only, shards that turn as the whole does.
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/registry.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

constexpr double u = 0x1p-24;

template <typename T>
class RopeVersions : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(RopeVersions, Types);

TYPED_TEST(RopeVersions, TurnsEveryPairAndNothingElse) {
  using T = TypeParam;
  for (const auto& version : versions_of<RopeFunctions<T>>()) {
    std::mt19937_64 random(1);
    ErrorTally tally("rope " + std::string(version.version));
    for (const std::int64_t head_dim : {2, 4, 10, 32, 34, 64, 128, 130}) {
      for (const std::int64_t heads : {1, 3}) {
        const RopeShape shape{2, 5, heads, head_dim};
        const std::vector<std::int32_t> positions = {0, 7, 3, 1000, 4095};
        const auto half = static_cast<std::size_t>(head_dim / 2);
        std::vector<float> cosine(5 * half), sine(5 * half);
        rope_table<float>(positions, head_dim, 10000.0, cosine.data(), sine.data());
        // A view into a wider matrix: other columns must stay.
        const std::int64_t time_stride = heads * head_dim + 6;
        const std::int64_t batch_stride = 5 * time_stride + 3;
        const auto before = normal_values<T>(2 * batch_stride, random, 1.0, 1);
        for (const Turn direction : {Turn::kForward, Turn::kBack}) {
          Guarded<T> x = before;
          version.functions->turn(shape, {x.data() + 2, batch_stride, time_stride}, cosine.data(),
                                  sine.data(), direction, 0, 4);
          version.functions->turn(shape, {x.data() + 2, batch_stride, time_stride}, cosine.data(),
                                  sine.data(), direction, 4, 10);
          EXPECT_TRUE(x.is_intact());
          std::vector<double> expected = exact(before);
          std::vector<double> bound(expected.size(), 0.0);
          for (std::int64_t at = 0; at < 10; ++at) {
            const std::int64_t t = at % 5;
            for (std::int64_t h = 0; h < heads; ++h) {
              for (std::size_t i = 0; i < half; ++i) {
                const auto a = static_cast<std::size_t>(2 + at / 5 * batch_stride +
                                                        t * time_stride + h * head_dim) +
                               i;
                const double angle = positions[static_cast<std::size_t>(t)] *
                                     std::pow(10000.0, -2.0 * static_cast<double>(i) /
                                                           static_cast<double>(head_dim));
                const double c = std::cos(angle);
                const double s = direction == Turn::kForward ? std::sin(angle) : -std::sin(angle);
                const double p = expected[a];
                const double q = expected[a + half];
                expected[a] = p * c - q * s;
                expected[a + half] = q * c + p * s;
                bound[a] = bound[a + half] = 3 * u * (std::abs(p) + std::abs(q));
              }
            }
          }
          for (std::int64_t i = 0; i < x.count(); ++i) {
            const auto j = static_cast<std::size_t>(i);
            const double stored = bound[j] > 0 ? storing_roundoff<T>() * std::abs(expected[j]) : 0;
            tally.add(x[i], expected[j], bound[j] + stored);
          }
        }
      }
    }
    tally.expect_tight(0.3);
  }
}

TEST(Rope, BackwardUndoesForwardAndScoresDependOnDistanceOnly) {
  std::mt19937_64 random(2);
  const std::int64_t dim = 16;
  const auto q = exact(normal_values<double>(dim, random));
  const auto k = exact(normal_values<double>(dim, random));
  const auto score = [&](std::int32_t q_position, std::int32_t k_position) {
    const std::vector<std::int32_t> positions = {q_position, k_position};
    std::vector<double> cosine(16), sine(16), x = q;
    x.insert(x.end(), k.begin(), k.end());
    rope_table<double>(positions, dim, 10000.0, cosine.data(), sine.data());
    const RopeShape shape{1, 2, 1, dim};
    rope_forward<double>(shape, {x.data(), 2 * dim, dim}, cosine.data(), sine.data());
    const double result = std::inner_product(x.begin(), x.begin() + dim, x.begin() + dim, 0.0);
    rope_backward<double>(shape, {x.data(), 2 * dim, dim}, cosine.data(), sine.data());
    for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(x[i], q[i], 1e-14);
    return result;
  };
  EXPECT_NEAR(score(9, 4), score(1005, 1000), 1e-11);
  EXPECT_NEAR(score(0, 0), std::inner_product(q.begin(), q.end(), k.begin(), 0.0), 1e-14);
  EXPECT_GT(std::abs(score(9, 4) - score(9, 5)), 1e-3);
}

TEST(Rope, AShardOfTheSequenceTurnsAsTheWhole) {
  std::mt19937_64 random(3);
  const std::int64_t dim = 8;
  const auto whole_before = normal_values<float>(6 * dim, random);
  std::vector<float> cosine(24), sine(24);
  rope_table<float>(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}, dim, 500000.0, cosine.data(),
                    sine.data());
  Guarded<float> whole = whole_before;
  rope_forward<float>({1, 6, 1, dim}, {whole.data(), 6 * dim, dim}, cosine.data(), sine.data());
  // The shard of a zigzag ring: the first and the last position.
  std::vector<float> shard(whole_before.data(), whole_before.data() + dim);
  shard.insert(shard.end(), whole_before.data() + 5 * dim, whole_before.data() + 6 * dim);
  rope_table<float>(std::vector<std::int32_t>{0, 5}, dim, 500000.0, cosine.data(), sine.data());
  rope_forward<float>({1, 2, 1, dim}, {shard.data(), 2 * dim, dim}, cosine.data(), sine.data());
  for (std::int64_t i = 0; i < dim; ++i) {
    EXPECT_EQ(shard[static_cast<std::size_t>(i)], whole[i]);
    EXPECT_EQ(shard[static_cast<std::size_t>(dim + i)], whole[5 * dim + i]);
  }
}

TEST(Rope, ThreadCountChangesNoBits) {
  std::mt19937_64 random(4);
  const RopeShape shape{2, 300, 4, 64};
  const std::int64_t count = 2 * 300 * 256;
  const auto before = normal_values<float>(count, random);
  std::vector<std::int32_t> positions(300);
  std::iota(positions.begin(), positions.end(), 5);
  std::vector<float> cosine(300 * 32), sine(300 * 32);
  rope_table<float>(positions, 64, 10000.0, cosine.data(), sine.data());
  ThreadPool pool(3);
  std::vector<std::vector<double>> results;
  for (const Threads threads : {Threads{}, Threads{2, nullptr}, Threads{3, &pool}}) {
    Guarded<float> x = before;
    rope_forward<float>(shape, {x.data(), 300 * 256, 256}, cosine.data(), sine.data(), threads);
    results.push_back(exact(x));
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

}  // namespace
}  // namespace sinew::kernels
