// The approximate instructions of a device, as far off as the PTX manual lets them be: what a test
// asks of a kernel must hold for every device that keeps to the manual.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace sinew::twin {

// What .ftz makes of an operand and a result.
inline float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}

// ex2.approx.ftz.f32: off by 2^-22 of the value, above or below as the argument's bits have it.
inline float exp2_approx(float x) {
  constexpr float kError = 0x1p-22F;
  const float operand = flushed(x);
  if (operand == 0) return 1;
  const bool above = std::popcount(std::bit_cast<std::uint32_t>(operand)) % 2 != 0;
  return flushed(std::exp2(operand) * (above ? 1 + kError : 1 - kError));
}

}  // namespace sinew::twin
