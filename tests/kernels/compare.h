// What the kernel tests share: seeded inputs, the unit roundoff of a type, and a tally of errors
// against bounds.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/element.h"
#include "tests/kernels/guarded.h"

namespace sinew::kernels {

template <typename T>
constexpr double unit_roundoff() {
  if constexpr (std::is_same_v<T, double>) return 0x1p-53;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  if constexpr (std::is_same_v<T, bf16>) return 0x1p-8;
  if constexpr (std::is_same_v<T, f16>) return 0x1p-11;
}

// The roundoff that storing a result as T adds to arithmetic in Wide<T>: none unless T is narrower.
template <typename T>
constexpr double storing_roundoff() {
  return kIsHalf<T> ? unit_roundoff<T>() : 0.0;
}

template <typename T>
double exact(T value) {
  return static_cast<double>(widen(value));
}

template <typename T>
std::vector<double> exact(const Guarded<T>& values) {
  std::vector<double> result(static_cast<std::size_t>(values.count()));
  for (std::int64_t i = 0; i < values.count(); ++i) {
    result[static_cast<std::size_t>(i)] = exact(values[i]);
  }
  return result;
}

// Standard normal values times `scale`, rounded to T; misaligned by `offset` elements.
template <typename T>
Guarded<T> normal_values(std::int64_t count, std::mt19937_64& random, double scale = 1.0,
                         std::int64_t offset = 0) {
  std::normal_distribution<double> normal(0.0, scale);
  Guarded<T> values(count, offset);
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = narrow<T>(static_cast<Wide<T>>(normal(random)));
  }
  return values;
}

// Collects error over bound. The bound must hold for every element, and some element must come
// within a factor of it, or the bound says nothing (or the reference is not independent).
class ErrorTally {
 public:
  explicit ErrorTally(std::string name) : name_(std::move(name)) {}
  ErrorTally(const ErrorTally&) = delete;
  ErrorTally& operator=(const ErrorTally&) = delete;

  template <typename T>
  void add(T found, double expected, double bound) {
    const double error = std::abs(exact(found) - expected);
    ++count_;
    if (error <= bound) {
      if (bound > 0) worst_ = std::max(worst_, error / bound);
      return;
    }
    if (failures_++ == 0) {
      ADD_FAILURE() << name_ << ": " << exact(found) << " for " << expected << ", error " << error
                    << " above the bound " << bound;
    }
  }

  // Two-sided: the worst element uses at least `least` of its bound.
  void expect_tight(double least) const {
    EXPECT_GE(worst_, least) << name_ << ": the bound is loose over " << count_ << " values";
    EXPECT_EQ(failures_, 0) << name_;
  }
  [[nodiscard]] double worst() const { return worst_; }

 private:
  std::string name_;
  double worst_ = 0;
  std::int64_t count_ = 0;
  std::int64_t failures_ = 0;
};

// The derivative of value() with respect to *variable by central difference.
template <typename Value>
double difference(double* variable, const Value& value, double step = 1e-5) {
  const double saved = *variable;
  *variable = saved + step;
  const double above = value();
  *variable = saved - step;
  const double below = value();
  *variable = saved;
  return (above - below) / (2 * step);
}

}  // namespace sinew::kernels
