// What bench/paired.h promises: an interval that is as narrow as 95 % allow, and is right that
// often.
#include "bench/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace sinew::bench {
namespace {

// The probability that the median lies within, by counting all outcomes of n fair coins.
double coverage(int count, int outside) {
  double inside = 0;
  for (int heads = outside + 1; heads < count - outside; ++heads)
    inside += std::exp(std::lgamma(count + 1) - std::lgamma(heads + 1) -
                       std::lgamma(count - heads + 1) - count * std::log(2.0));
  return inside;
}

TEST(Paired, TheIntervalIsAsNarrowAsTheProbabilityAllows) {
  for (int count = 1; count <= 300; ++count) {
    const int outside = samples_outside(count);
    if (outside >= 0) {
      EXPECT_GE(coverage(count, outside), 0.95 - 1e-9) << count;
    }
    EXPECT_LT(coverage(count, outside + 1), 0.95 + 1e-9) << count;
    EXPECT_EQ(outside < 0, count < 6) << count;
  }
}

TEST(Paired, ExchangingTheTwoSidesGivesTheInverse) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> draw(0.1, 0.3);
  std::vector<double> ratios(41);
  for (double& ratio : ratios) ratio = draw(random);
  std::vector<double> inverse;
  for (const double ratio : ratios) inverse.push_back(1 / ratio);
  const PairedRatio one = paired_ratio(ratios);
  const PairedRatio other = paired_ratio(inverse);
  EXPECT_DOUBLE_EQ(one.median, 1 / other.median);
  EXPECT_DOUBLE_EQ(one.low, 1 / other.high);
  EXPECT_DOUBLE_EQ(one.high, 1 / other.low);
}

// Skewed samples with far outliers, as times have them: the true median is 1.
TEST(Paired, TheIntervalHoldsTheTrueMedianAsOftenAsItSays) {
  std::mt19937_64 random(11);
  std::lognormal_distribution<double> draw(0, 2);
  int held = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> ratios(25);
    for (double& ratio : ratios) ratio = draw(random);
    const PairedRatio found = paired_ratio(ratios);
    held += found.low <= 1 && 1 <= found.high;
  }
  EXPECT_GE(held, kTrials * 94 / 100);
}

}  // namespace
}  // namespace sinew::bench
