// Laws of AdamW: every version against the formula in f64, a shard equals the whole bit for bit.
#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include "kernels/registry.h"
#include "tests/kernels/adamw_options.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

constexpr double u = 0x1p-24;

TEST(AdamWVersions, OneStepIsWithinItsBoundOfTheFormula) {
  for (const auto& version : versions_of<AdamWFunctions<float>>()) {
    std::mt19937_64 random(1);
    ErrorTally weights("weight " + std::string(version.version));
    ErrorTally moments("moments " + std::string(version.version));
    for (const std::int64_t step : {1, 2, 100, 100000}) {
      for (const std::int64_t count : {0, 1, 7, 15, 16, 17, 63, 130}) {
        const AdamW o = options_at(step);
        const auto g = normal_values<float>(count, random, 1.0, 1);
        Guarded<float> w = normal_values<float>(count, random, 1.0, 2);
        Guarded<float> m = normal_values<float>(count, random, 0.1, 3);
        Guarded<float> v = normal_values<float>(count, random, 0.1, 4);
        for (std::int64_t i = 0; i < count; ++i) v[i] = std::abs(v[i]);
        const auto w0 = exact(w), m0 = exact(m), v0 = exact(v);
        version.functions->step(o, count, g.data(), w.data(), m.data(), v.data());
        EXPECT_TRUE(w.is_intact() && m.is_intact() && v.is_intact());
        for (std::int64_t i = 0; i < count; ++i) {
          const auto s = static_cast<std::size_t>(i);
          const double gradient = exact(g[i]) * o.gradient_scale;
          const double m1 = o.beta1 * m0[s] + (1 - o.beta1) * gradient;
          const double v1 = o.beta2 * v0[s] + (1 - o.beta2) * gradient * gradient;
          const double m_hat = m1 / (1 - std::pow(o.beta1, static_cast<double>(step)));
          const double v_hat = v1 / (1 - std::pow(o.beta2, static_cast<double>(step)));
          const double direction = m_hat / (std::sqrt(v_hat) + o.epsilon);
          const double expected = w0[s] - o.lr * (direction + o.weight_decay * w0[s]);
          const double m_magnitude = o.beta1 * std::abs(m0[s]) + (1 - o.beta1) * std::abs(gradient);
          moments.add(m[i], m1, 4 * u * m_magnitude);
          moments.add(v[i], v1, 5 * u * v1);
          // m carries 4u of its terms, the corrections, root, sum and division 8u of the direction,
          // the last subtraction one u of the weight.
          const double spread = m_magnitude / (std::abs(m1) + 1e-300);
          const double update = o.lr * (std::abs(direction) * (8 + 4 * spread) +
                                        4 * o.weight_decay * std::abs(w0[s]));
          weights.add(w[i], expected, u * (std::abs(expected) + update));
        }
      }
    }
    weights.expect_tight(0.3);
    moments.expect_tight(0.2);
  }
}

TEST(AdamWVersions, AShardEqualsTheWhole) {
  for (const auto& version : versions_of<AdamWFunctions<float>>()) {
    std::mt19937_64 random(2);
    const std::int64_t count = 211;
    const auto g = normal_values<float>(count, random);
    const auto w = normal_values<float>(count, random);
    std::vector<std::vector<double>> results;
    for (const std::int64_t part : {211, 100, 17, 1}) {
      Guarded<float> weight = w;
      Guarded<float> m(count), v(count);
      for (std::int64_t step = 1; step <= 3; ++step) {
        for (std::int64_t i = 0; i < count; i += part) {
          version.functions->step(options_at(step), std::min(part, count - i), g.data() + i,
                                  weight.data() + i, m.data() + i, v.data() + i);
        }
      }
      for (const auto* out : {&weight, &m, &v}) results.push_back(exact(*out));
    }
    for (std::size_t i = 3; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 3]);
  }
}

// The gradient of every size, zero included, moves the weight against it by lr at the first step,
// whatever its scale: m_hat = g and v_hat = g^2.
TEST(AdamW, TheFirstStepMovesByLrAgainstTheGradient) {
  for (const double g : {1e-3, 1.0, 1e3, -5.0, 0.0}) {
    double w = 2.0, m = 0.0, v = 0.0;
    adamw<double>({.lr = 0.1, .weight_decay = 0.0, .step = 1}, 1, &g, &w, &m, &v);
    EXPECT_NEAR(w, 2.0 - (g > 0 ? 0.1 : g < 0 ? -0.1 : 0.0), 1e-5);
  }
}

TEST(AdamW, DecayActsOnTheOldWeightAndIsScaledByLr) {
  const double g = 0.0;
  double w = 2.0, m = 0.0, v = 0.0;
  adamw<double>({.lr = 0.1, .weight_decay = 0.5, .step = 1}, 1, &g, &w, &m, &v);
  EXPECT_DOUBLE_EQ(w, 2.0 - 0.1 * 0.5 * 2.0);
}

TEST(AdamW, ThreadCountChangesNoBits) {
  std::mt19937_64 random(3);
  const std::int64_t count = 200003;
  const auto g = normal_values<float>(count, random);
  ThreadPool pool(3);
  std::vector<std::vector<double>> results;
  for (const Threads threads : {Threads{}, Threads{2, nullptr}, Threads{3, &pool}}) {
    Guarded<float> w = g;
    Guarded<float> m(count), v(count);
    adamw(options_at(1), count, g.data(), w.data(), m.data(), v.data(), threads);
    for (const auto* out : {&w, &m, &v}) results.push_back(exact(*out));
  }
  for (std::size_t i = 3; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 3]);
}

}  // namespace
}  // namespace sinew::kernels
