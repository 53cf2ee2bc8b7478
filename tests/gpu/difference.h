// How far results on the device are from those on the processor.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

namespace sinew::testing {

// The norm of the difference over the norm of `expected`, which must not be zero.
inline double difference(const std::vector<double>& actual, const std::vector<double>& expected) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  EXPECT_GT(norm, 0);
  return std::sqrt(error / norm);
}

}  // namespace sinew::testing
