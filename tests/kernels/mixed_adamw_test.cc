// Laws of AdamW for bf16 weights: the master takes adamw<float>'s step bit for bit, stochastic
// rounding is unbiased, moves weights that nearest rounding would leave, and is the same for any
// shard.
#include "kernels/mixed_adamw.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "kernels/registry.h"
#include "tests/kernels/adamw_options.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

// The adamw version of the same name, or the plain one.
const AdamWFunctions<float>& f32_version(std::string_view name) {
  for (const auto& version : versions_of<AdamWFunctions<float>>()) {
    if (version.version == name) return *version.functions;
  }
  return adamw_plain<float>();
}

TEST(MixedAdamWVersions, TheMasterTakesTheF32StepAndTheWeightIsTheMasterRounded) {
  for (const auto& version : versions_of<MixedAdamWFunctions>()) {
    std::mt19937_64 random(1);
    for (const std::int64_t count : {0, 1, 15, 16, 17, 31, 32, 33, 64, 201}) {
      const auto g = normal_values<float>(count, random, 1.0, 1);
      Guarded<float> master = normal_values<float>(count, random, 1.0, 2), e_master = master;
      Guarded<float> m(count, 3), v(count, 4), e_m(count), e_v(count);
      Guarded<bf16> weight(count, 5);
      for (std::int64_t step = 1; step <= 3; ++step) {
        version.functions->with_master(options_at(step), count, g.data(), master.data(),
                                       weight.data(), m.data(), v.data());
        f32_version(version.version)
            .step(options_at(step), count, g.data(), e_master.data(), e_m.data(), e_v.data());
      }
      EXPECT_EQ(exact(master), exact(e_master)) << version.version;
      EXPECT_EQ(exact(m), exact(e_m));
      EXPECT_EQ(exact(v), exact(e_v));
      for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(weight[i].bits, to_bf16(master[i]).bits);
      EXPECT_TRUE(master.is_intact() && m.is_intact() && v.is_intact() && weight.is_intact());
    }
  }
}

TEST(MixedAdamWVersions, TheStochasticWeightIsTheF32StepRoundedByTheElementsOwnWord) {
  const RandomStream random{5, 6, 7};
  for (const auto& version : versions_of<MixedAdamWFunctions>()) {
    std::mt19937_64 values(2);
    for (const std::int64_t count : {0, 1, 16, 31, 32, 33, 64, 65, 200}) {
      for (const std::int64_t first : {0, 1, 64, 1000003}) {
        const auto g = normal_values<float>(count, values, 1.0, 1);
        Guarded<bf16> weight = normal_values<bf16>(count, values, 1.0, 2);
        Guarded<float> m(count, 3), v(count, 4), e_m(count), e_v(count), value(count);
        for (std::int64_t i = 0; i < count; ++i) value[i] = to_float(weight[i]);
        version.functions->stochastic(options_at(1), random, first, count, g.data(), weight.data(),
                                      m.data(), v.data());
        f32_version(version.version)
            .step(options_at(1), count, g.data(), value.data(), e_m.data(), e_v.data());
        for (std::int64_t i = 0; i < count; ++i) {
          EXPECT_EQ(weight[i].bits,
                    round_stochastically(value[i], random_bits(random, first + i)).bits)
              << version.version << " " << i;
        }
        EXPECT_EQ(exact(m), exact(e_m));
        EXPECT_EQ(exact(v), exact(e_v));
        EXPECT_TRUE(weight.is_intact() && m.is_intact() && v.is_intact());
      }
    }
  }
}

TEST(StochasticRounding, IsOneOfTheTwoNeighboursAndUnbiased) {
  for (const float value : {1.0F, 1.0F + 0x1p-9F, -3.14159F, 1e-40F, 3.3e38F}) {
    const double below =
        exact(bf16{static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16)});
    double sum = 0;
    const int draws = 20000;
    std::set<double> seen;
    for (int i = 0; i < draws; ++i) {
      const double rounded = exact(round_stochastically(value, random_bits({1, 1, 1}, i)));
      seen.insert(rounded);
      sum +=
          (rounded - static_cast<double>(value)) / (std::abs(static_cast<double>(value)) + 1e-300);
    }
    EXPECT_LE(seen.size(), 2U);
    EXPECT_TRUE(seen.count(below) == 1 || seen.size() == 1);
    // A draw errs by at most one unit, 2^-7 of the value (a subnormal's unit is larger, relative to
    // it).
    const double unit = value == 1e-40F ? 1.0 : 0x1p-7;
    EXPECT_NEAR(sum / draws, 0.0, 5 * unit / std::sqrt(static_cast<double>(draws)));
  }
  EXPECT_TRUE(std::isnan(exact(round_stochastically(NAN, 0xffffU))));
  EXPECT_EQ(exact(round_stochastically(INFINITY, 0xffffU)), INFINITY);
  EXPECT_EQ(exact(round_stochastically(-INFINITY, 0xffffU)), -INFINITY);
}

TEST(StochasticRounding, SmallUpdatesMoveTheWeightsOnAverage) {
  const std::int64_t count = 1000;
  std::vector<float> g(count, 1.0F), m(count), v(count);
  std::vector<bf16> weight(count, to_bf16(1.0F));
  const AdamW options{.lr = 1e-4,
                      .step = 1};  // a fortieth of a unit: nearest rounding would lose every step
  for (std::int64_t step = 1; step <= 20; ++step) {
    AdamW o = options;
    o.step = step;
    adamw_stochastic(o, {1, 2, static_cast<std::uint64_t>(step)}, 0, count, g.data(), weight.data(),
                     m.data(), v.data());
  }
  double mean = 0;
  for (const bf16 w : weight) mean += exact(w) / static_cast<double>(count);
  EXPECT_NEAR(mean, 1.0 - 20 * 1e-4, 2e-4);
}

TEST(MixedAdamW, AShardAndEveryThreadCountGiveTheWholesBits) {
  std::mt19937_64 values(3);
  const std::int64_t count = 150001;
  const auto g = normal_values<float>(count, values);
  const auto start = normal_values<bf16>(count, values);
  const RandomStream random{1, 2, 3};
  ThreadPool pool(3);
  std::vector<std::vector<double>> results;
  for (const Threads threads : {Threads{}, Threads{2, nullptr}, Threads{3, &pool}}) {
    Guarded<bf16> weight = start, rounded(count);
    Guarded<float> m(count), v(count), master = g, m2(count), v2(count);
    adamw_stochastic(options_at(1), random, 0, count, g.data(), weight.data(), m.data(), v.data(),
                     threads);
    adamw_with_master(options_at(1), count, g.data(), master.data(), rounded.data(), m2.data(),
                      v2.data(), threads);
    results.push_back(exact(weight));
    results.push_back(exact(rounded));
  }
  Guarded<bf16> weight = start;
  Guarded<float> m(count), v(count);
  for (std::int64_t i = 0; i < count; i += 50021) {
    const std::int64_t part = std::min<std::int64_t>(50021, count - i);
    adamw_stochastic(options_at(1), random, i, part, g.data() + i, weight.data() + i, m.data() + i,
                     v.data() + i);
  }
  EXPECT_EQ(exact(weight), results[0]);
  for (std::size_t i = 2; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 2]);
}

}  // namespace
}  // namespace sinew::kernels
