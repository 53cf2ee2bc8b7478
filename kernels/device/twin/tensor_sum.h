// A sum of a tensor core: products of 16-bit numbers are exact, but they and the sum so far are
// lined up with the largest of them and cut, not rounded. How many bits are kept differs between
// generations; here it is as few as f32 has, once for the whole sum, so that bounds which hold here
// hold on all of them.
//
// Source: Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace sinew::twin {

// So many sums whose products share their left factor, as those of a row of a matrix product do.
template <int kSums>
class TensorSums {
 public:
  void add(float left, const float* rights) {
    for (int i = 0; i < kSums; ++i) {
      const float product = left * rights[i];
      sums_[i] += static_cast<double>(product);
      // Not negative, so floats are ordered as their bits are.
      const std::int32_t magnitude = std::bit_cast<std::int32_t>(product) & 0x7fff'ffff;
      largest_[i] = largest_[i] < magnitude ? magnitude : largest_[i];
    }
  }
  // Sum i on top of `before`, toward zero.
  [[nodiscard]] float on(int i, float before) const {
    const double total = static_cast<double>(before) + sums_[i];
    const float product = std::bit_cast<float>(largest_[i]);
    const float largest = product < std::fabs(before) ? std::fabs(before) : product;
    // Finite, and with no unit below the least of f32: else there is nothing to cut.
    if (!(largest >= 0x1p-100F) || !std::isfinite(total)) return static_cast<float>(total);
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(largest) & 0x7f80'0000U;
    const double unit = static_cast<double>(std::bit_cast<float>(exponent)) * 0x1p-23;
    return static_cast<float>(std::trunc(total / unit) * unit);
  }

 private:
  double sums_[kSums] = {};
  std::int32_t largest_[kSums] = {};  // bits of a float
};

}  // namespace sinew::twin
