// Four floats, which every compiler maps to SSE or NEON registers: the vector type V of the *_inl.h
// kernels. Included only by files compiled for that instruction set; everything is in an unnamed
// namespace, so that nothing of it can be linked elsewhere.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "sched/base/dtype.h"

namespace sinew::kernels {
namespace {

struct Portable {
  static constexpr int kLanes = 4;
  // scale_by_power makes 0 of 2^-127, whose exponent bits are 0.
  static constexpr float kLeastPower = -127;
  using Vector [[gnu::vector_size(16)]] = float;
  static Vector zero() { return Vector{}; }
  static Vector load(const float* x) { return load_partial(x, kLanes); }
  static void store(float* x, Vector v) { store_partial(x, v, kLanes); }
  static Vector load_partial(const float* x, int count) {
    Vector v{};
    std::memcpy(&v, x, static_cast<std::size_t>(count) * sizeof(float));
    return v;
  }
  static void store_partial(float* x, Vector v, int count) {
    std::memcpy(x, &v, static_cast<std::size_t>(count) * sizeof(float));
  }
  static Vector load(const bf16* x) { return load_partial(x, kLanes); }
  static void store(bf16* x, Vector v) { store_partial(x, v, kLanes); }
  static Vector load_partial(const bf16* x, int count) {
    Vector v{};
    for (int i = 0; i < count; ++i) v[i] = to_float(x[i]);
    return v;
  }
  static void store_partial(bf16* x, Vector v, int count) {
    for (int i = 0; i < count; ++i) x[i] = to_bf16(v[i]);
  }
  static Vector broadcast(const float* x) { return Vector{} + *x; }
  static Vector multiply(Vector x, Vector y) { return x * y; }
  static Vector multiply_add(Vector x, Vector y, Vector z) { return z + x * y; }
  static Vector add(Vector x, Vector y) { return x + y; }
  static Vector subtract(Vector x, Vector y) { return x - y; }
  static Vector divide(Vector x, Vector y) { return x / y; }
  static Vector min(Vector x, Vector y) { return x < y ? x : y; }
  static Vector max(Vector x, Vector y) { return x > y ? x : y; }
  // Adding 1.5 * 2^23 leaves no bits for a fraction; right for |x| < 2^22.
  static Vector round(Vector x) { return (x + 0x1.8p23F) - 0x1.8p23F; }
  static Vector scale_by_power(Vector x, Vector n) {
    using Words [[gnu::vector_size(16)]] = std::int32_t;
    const Words exponent = (__builtin_convertvector(n, Words) + 127) << 23;
    return x * std::bit_cast<Vector>(exponent);
  }
  static float sum(Vector x) { return (x[0] + x[1]) + (x[2] + x[3]); }
  static Vector select_from(std::int64_t first, Vector x, Vector y) {
    for (int i = 0; i < kLanes; ++i) x[i] = i >= first ? x[i] : y[i];
    return x;
  }
  static void transpose(Vector (&r)[kLanes]) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = i + 1; j < kLanes; ++j) {
        const float above = r[i][j];
        r[i][j] = r[j][i];
        r[j][i] = above;
      }
    }
  }
};

}  // namespace
}  // namespace sinew::kernels
