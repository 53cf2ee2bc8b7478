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

class TensorSum {
 public:
  void add(float product) {
    sum_ += static_cast<double>(product);
    const float magnitude = std::fabs(product);
    largest_ = largest_ < magnitude ? magnitude : largest_;
  }
  // The sum on top of `before`, toward zero.
  [[nodiscard]] float on(float before) const {
    const double total = static_cast<double>(before) + sum_;
    const float largest = std::fmax(largest_, std::fabs(before));
    // Finite, and with no unit below the least of f32: else there is nothing to cut.
    if (!(largest >= 0x1p-100F) || !std::isfinite(total)) return static_cast<float>(total);
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(largest) & 0x7f80'0000U;
    const double unit = static_cast<double>(std::bit_cast<float>(exponent)) * 0x1p-23;
    return static_cast<float>(std::trunc(total / unit) * unit);
  }

 private:
  double sum_ = 0;
  float largest_ = 0;
};

}  // namespace sinew::twin
