// Conversions of the 8-bit floats of the OCP specification (2023). e4m3: 4 exponent and 3 fraction
// bits, bias 7, no infinity, one NaN (0x7f with either sign), largest value 448. e5m2: 5 and 2
// bits, bias 15, infinities, largest value 57344. Device code uses them too.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "sched/base/dtype.h"

namespace sinew::kernels {

template <typename T>
struct Float8Traits;
template <>
struct Float8Traits<e4m3> {
  static constexpr int kFractionBits = 3;
  static constexpr int kBias = 7;
  static constexpr float kLargest = 448.0F;
};
template <>
struct Float8Traits<e5m2> {
  static constexpr int kFractionBits = 2;
  static constexpr int kBias = 15;
  static constexpr float kLargest = 57344.0F;
};

// The smallest positive value of T: the unit of its subnormals.
template <typename T>
constexpr float smallest_float8() {
  return std::bit_cast<float>(
      static_cast<std::uint32_t>(128 - Float8Traits<T>::kBias - Float8Traits<T>::kFractionBits)
      << 23);
}

// Nearest even; beyond the largest value, infinities included, the largest value; NaN stays NaN.
template <typename T>
constexpr T to_float8(float value) {
  using Traits = Float8Traits<T>;
  constexpr int kDropped = 23 - Traits::kFractionBits;
  const auto given = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>(given >> 24 & 0x80U);
  if ((given & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint8_t>(sign | 0x7fU)};
  const auto magnitude = std::bit_cast<float>(given & 0x7fffffffU);
  const float clamped = magnitude < Traits::kLargest ? magnitude : Traits::kLargest;
  const auto bits = std::bit_cast<std::uint32_t>(clamped);
  constexpr std::uint32_t kLeastNormal = static_cast<std::uint32_t>(128 - Traits::kBias) << 23;
  if (bits >= kLeastNormal) {
    const std::uint32_t odd = (bits >> kDropped) & 1U;
    const std::uint32_t rounded =
        bits - ((127U - Traits::kBias) << 23) + ((1U << (kDropped - 1)) - 1) + odd;
    return {static_cast<std::uint8_t>(sign | (rounded >> kDropped))};
  }
  // Subnormal: adding 2^23 units aligns the value so that the adder itself rounds to a multiple of
  // the unit.
  const float aligner = smallest_float8<T>() * 0x1p23F;
  const auto aligned = std::bit_cast<std::uint32_t>(clamped + aligner);
  return {static_cast<std::uint8_t>(sign | (aligned - std::bit_cast<std::uint32_t>(aligner)))};
}

// e5m2 is the upper half of f16.
constexpr f16 as_f16(e5m2 value) { return {static_cast<std::uint16_t>(value.bits << 8)}; }

}  // namespace sinew::kernels

namespace sinew {

// Exact. Here, where calls find them by their arguments' type.
constexpr float to_float(e4m3 value) {
  const std::uint32_t magnitude = value.bits & 0x7fU;
  const float exact = magnitude == 0x7fU
                          ? std::numeric_limits<float>::quiet_NaN()
                          : std::bit_cast<float>(magnitude << 20) * 0x1p120F;  // rebias by 120
  return (value.bits & 0x80U) != 0 ? -exact : exact;
}
inline float to_float(e5m2 value) { return to_float(kernels::as_f16(value)); }

}  // namespace sinew
