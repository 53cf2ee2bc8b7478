// DeviceArray: typed device memory with copies that wait, and the loop over the twin's schedules.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/runtime.h"
#include "kernels/device/twin/config.h"
#include "sched/base/dtype.h"

namespace sinew::testing {

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : memory_(count * sizeof(T)), count_(count) {}
  DeviceArray(std::span<const T> values, device::Stream& stream) : DeviceArray(values.size()) {
    stream.copy(data(), values.data(), values.size_bytes());
    stream.synchronize();
  }
  DeviceArray(const std::vector<T>& values, device::Stream& stream)
      : DeviceArray(std::span(values), stream) {}
  [[nodiscard]] T* data() const { return memory_.as<T>(); }
  [[nodiscard]] const device::Memory& memory() const { return memory_; }
  [[nodiscard]] std::vector<T> download(device::Stream& stream) const {
    std::vector<T> values(count_);
    stream.copy(values.data(), data(), count_ * sizeof(T));
    stream.synchronize();
    return values;
  }

 private:
  device::Memory memory_;
  std::size_t count_;
};

// Few under a sanitizer, which is slow and needs few: it reasons on order, not on luck.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kFewSchedules = true;
#else
inline constexpr bool kFewSchedules = false;
#endif

// Every order with early and late asynchronous work, and seeds where there is chance.
inline std::vector<twin::Config> schedules(int seeds = 3) {
#if defined(SINEW_ON_HARDWARE)
  static_cast<void>(seeds);
  return {twin::Config{}};  // a GPU has one schedule, its own
#else
  std::vector<twin::Config> result;
  const auto add = [&](twin::Order order, twin::Async async, int seed) {
    twin::Config config;
    config.order = order;
    config.async = async;
    config.seed = static_cast<std::uint64_t>(seed);
    config.resident_blocks = 1 + seed % 3;
    config.spin_limit_s = 5;
    result.push_back(config);
  };
  // An interpreter of PTX is slow, and what it looks for shows under few.
  const bool few = kFewSchedules || twin::Scope::current().interpreter != nullptr;
  add(twin::Order::kFifo, twin::Async::kEager, 0);
  add(twin::Order::kLifo, twin::Async::kLazy, 1);
  if (!few) {
    add(twin::Order::kFifo, twin::Async::kLazy, 1);
    add(twin::Order::kLifo, twin::Async::kEager, 0);
  }
  for (int seed = 0; seed < (few ? 1 : seeds); ++seed) {
    add(twin::Order::kRandom, static_cast<twin::Async>(seed % 3), seed);
    add(twin::Order::kPriority, static_cast<twin::Async>((seed + 1) % 3), seed);
  }
  return result;
#endif
}

// Calls body(stream) under each schedule; failures name the schedule.
template <typename Body>
void for_each_schedule(Body&& body, int seeds = 3) {
  for (const twin::Config& config : schedules(seeds)) {
    SCOPED_TRACE(twin::describe(config));
    const twin::Scope scope(config);
    device::Stream stream;
    body(stream);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

inline std::vector<float> normal_values(std::size_t count, std::uint32_t seed, float scale = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

template <typename T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(value);
  } else {
    return static_cast<T>(value);
  }
}
template <typename T>
float as_float(T value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_float(value);
  } else {
    return static_cast<float>(value);
  }
}
template <typename T>
std::vector<T> from_floats(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(from_float<T>(value));
  return result;
}
template <typename T>
std::vector<float> as_floats(const std::vector<T>& values) {
  std::vector<float> result;
  for (const T value : values) result.push_back(as_float(value));
  return result;
}

template <typename T>
std::vector<double> as_doubles(const std::vector<T>& values) {
  std::vector<double> result;
  for (const T value : values) result.push_back(static_cast<double>(as_float(value)));
  return result;
}

// ||actual - expected|| / ||expected||; infinite when anything is not a number.
template <typename Actual, typename Expected>
double relative_error(const std::vector<Actual>& actual, const std::vector<Expected>& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto value = static_cast<double>(expected[i]);
    const double error = static_cast<double>(as_float(actual[i])) - value;
    difference += error * error;
    norm += value * value;
  }
  const double ratio = std::sqrt(difference) / (std::sqrt(norm) + 1e-30);
  return std::isnan(ratio) || actual.size() != expected.size() ? INFINITY : ratio;
}

// What rounding each result to T may cost: bf16 keeps 8 bits, half a unit is at most 2^-8 of a
// value; f32 sums lose a few units of 2^-24.
template <typename T>
constexpr double kRoundingError = std::is_same_v<T, bf16> ? 1.001 / 256 : 2e-6;

template <typename T>
bool same_bits(const std::vector<T>& left, const std::vector<T>& right) {
  return left.size() == right.size() &&
         std::memcmp(left.data(), right.data(), left.size() * sizeof(T)) == 0;
}

}  // namespace sinew::testing
