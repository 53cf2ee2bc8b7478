// Numbers in kernels: 16- and 8-bit formats are storage, arithmetic is f32; a fast approximation by
// name.
//
// Rounding is to nearest even everywhere. NaN stays NaN, its payload is not promised. An
// approximation is off by no more than the PTX manual says; on the host it is off by just that, to
// one side or the other.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/device/gpu/thread.h"
#include "kernels/float8.h"
#include "sched/base/dtype.h"

#ifndef __CUDACC__
#include "kernels/device/twin/approximation.h"
#endif

namespace sinew::gpu {

#ifdef __CUDACC__

GPU_FUNCTION float bits_to_float(std::uint32_t bits) { return __uint_as_float(bits); }
GPU_FUNCTION std::uint32_t float_to_bits(float value) { return __float_as_uint(value); }

GPU_FUNCTION bf16 narrow_bf16(float value) {
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
// low in bits 0 to 15, high in bits 16 to 31.
GPU_FUNCTION std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
GPU_FUNCTION f16 narrow_f16(float value) {
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
GPU_FUNCTION float widen(f16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}

GPU_FUNCTION float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// IEEE 754-2019 minimum and maximum: NaN if either is, -0 below +0. One instruction since sm_80.
GPU_FUNCTION float minimum(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
GPU_FUNCTION float maximum(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
// Not fused: the two roundings of the CPU kernels, where equal bits are promised.
GPU_FUNCTION float multiply_rounded(float a, float b) { return __fmul_rn(a, b); }
GPU_FUNCTION float add_rounded(float a, float b) { return __fadd_rn(a, b); }

#else

GPU_FUNCTION float bits_to_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
GPU_FUNCTION std::uint32_t float_to_bits(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

GPU_FUNCTION bf16 narrow_bf16(float value) { return to_bf16(value); }
GPU_FUNCTION std::uint32_t pack_bf16(float low, float high) {
  return static_cast<std::uint32_t>(to_bf16(low).bits) |
         static_cast<std::uint32_t>(to_bf16(high).bits) << 16;
}
GPU_FUNCTION f16 narrow_f16(float value) { return to_f16(value); }
GPU_FUNCTION float widen(f16 value) { return to_float(value); }

GPU_FUNCTION float exp2_approx(float x) { return twin::exp2_approx(x); }
GPU_FUNCTION float minimum(float a, float b) {
  if (a != a || b != b) return a + b;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
GPU_FUNCTION float maximum(float a, float b) {
  if (a != a || b != b) return a + b;
  if (a == b) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}
GPU_FUNCTION float multiply_rounded(float a, float b) { return a * b; }
GPU_FUNCTION float add_rounded(float a, float b) { return a + b; }

#endif

GPU_FUNCTION float widen(bf16 value) {
  return bits_to_float(static_cast<std::uint32_t>(value.bits) << 16);
}
GPU_FUNCTION float widen(float value) { return value; }
GPU_FUNCTION float widen(e4m3 value) { return to_float(value); }
GPU_FUNCTION float widen(e5m2 value) { return widen(kernels::as_f16(value)); }

// narrow<T>(f32): the stored form of a result.
template <typename T>
GPU_FUNCTION T narrow(float value);
template <>
GPU_FUNCTION float narrow<float>(float value) {
  return value;
}
template <>
GPU_FUNCTION bf16 narrow<bf16>(float value) {
  return narrow_bf16(value);
}
template <>
GPU_FUNCTION f16 narrow<f16>(float value) {
  return narrow_f16(value);
}
template <>
GPU_FUNCTION e4m3 narrow<e4m3>(float value) {
  return kernels::to_float8<e4m3>(value);
}
template <>
GPU_FUNCTION e5m2 narrow<e5m2>(float value) {
  return kernels::to_float8<e5m2>(value);
}

constexpr float kLog2E = 1.4426950408889634F;
GPU_FUNCTION float exp_approx(float x) { return exp2_approx(x * kLog2E); }

}  // namespace sinew::gpu
