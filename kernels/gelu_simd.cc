// The vector GELU. With z = 2 sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh(z/2))/2 = 1/(1 + exp(-z)),
// so
//   y = x / (1 + exp(-z)),   y' = s + x s^2 exp(-z) z',   s = 1/(1 + exp(-z)).
// s^2 exp(-z) is s (1 - s) without the cancellation. z is computed from x clamped to |x| <= 9.9,
// where |z| <= 85: beyond, s is 0 or 1 to within 1e-36, and infinities stay harmless (gelu(-inf) is
// -1e-36, not NaN). Error, float, u = 2^-24: z has relative error 3u and exp adds 2u, so |y -
// exact| <= 4 u |x|; |y' - exact| <= 12 u.
//
// bf16 on AVX-512: with q(a) = 1 - s(a) and p(a) = y'(-a), a = |x|, as quadratics up to a = 5,
// where both are below 3e-6 and end,
//   y = max(x, 0) - a q(a),   y' = p(a) for x < 0, else 1 - p(a).
// Their third derivatives are at most 0.39 and 1.5, so that q is off by at most 0.9e-5 and p
// by 3.4e-5 (quadratics.h): |y - exact| <= 1e-5 |x|, |y' - exact| <= 4e-5, and one rounding to
// bf16.
#include "kernels/gelu.h"

#include <cmath>

#include "kernels/streaming.h"

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gelu_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include <type_traits>

#include "kernels/quadratics_simd_inl.h"
#include "kernels/simd_inl.h"
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

constexpr float kTwoRoot = 1.5957691216057308F;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715F;
constexpr float kClamp = 9.9F;

// exp(-z) of v = x clamped, and v^2.
template <typename T>
HWY_INLINE FloatVec exp_of_minus_z(FloatVec v, FloatVec square) {
  const FloatTag d;
  const auto factor = hn::MulAdd(square, hn::Set(d, -kExpScale * kTwoRoot * kCubic),
                                 hn::Set(d, -kExpScale * kTwoRoot));
  return exp_of_scaled<T>(hn::Mul(v, factor));
}

template <typename T>
HWY_INLINE FloatVec gelu(FloatVec x) {
  const FloatTag d;
  // The operand order passes a NaN on.
  const auto low = hn::Max(hn::Set(d, -kClamp), x);
  const auto v = hn::Min(hn::Set(d, kClamp), low);
  const auto e = exp_of_minus_z<T>(v, hn::Mul(v, v));
  return hn::Div(low, hn::Add(e, hn::Set(d, 1.0F)));
}

template <typename T>
HWY_INLINE FloatVec gelu_slope(FloatVec x) {
  const FloatTag d;
  const auto v = hn::Min(hn::Set(d, kClamp), hn::Max(hn::Set(d, -kClamp), x));
  const auto square = hn::Mul(v, v);
  const auto z_slope = hn::MulAdd(square, hn::Set(d, 3 * kTwoRoot * kCubic), hn::Set(d, kTwoRoot));
  const auto e = exp_of_minus_z<T>(v, square);
  const auto s = hn::Div(hn::Set(d, 1.0F), hn::Add(e, hn::Set(d, 1.0F)));
  return hn::MulAdd(hn::Mul(hn::Mul(v, z_slope), s), hn::Mul(e, s), s);
}

#if HWY_TARGET <= HWY_AVX3
constexpr float kLastSegment = 5.0F;

// 1 - s(a), and y'(-a).
double upper_tail(double a) { return 1 / (1 + std::exp(kTwoRoot * a * (1 + kCubic * a * a))); }
double lower_slope(double a) {
  const double q = upper_tail(a);
  return q - a * q * (1 - q) * kTwoRoot * (1 + 3 * kCubic * a * a);
}
#endif

// y and y' of elements of T on vectors: constants are made once for a call.
template <typename T>
struct Activation {
  HWY_INLINE FloatVec value(FloatVec x) const { return gelu<T>(x); }
  HWY_INLINE FloatVec slope(FloatVec x) const { return gelu_slope<T>(x); }
};
#if HWY_TARGET <= HWY_AVX3
template <>
struct Activation<bf16> {
  const Quadratics& tail = tails();
  const Quadratics& slopes = lower_slopes();

  static const Quadratics& tails() {
    static const Quadratics quadratics(kLastSegment, upper_tail);
    return quadratics;
  }
  static const Quadratics& lower_slopes() {
    static const Quadratics quadratics(kLastSegment, lower_slope);
    return quadratics;
  }
  HWY_INLINE FloatVec value(FloatVec x) const {
    FloatVec a;
    const auto q = value_of(tail, x, a);
    return hn::NegMulAdd(a, q, hn::Max(x, hn::Zero(FloatTag())));
  }
  HWY_INLINE FloatVec slope(FloatVec x) const {
    FloatVec a;
    const auto p = value_of(slopes, x, a);
    const auto is_negative = hn::Lt(x, hn::Zero(FloatTag()));
    return hn::IfThenElse(is_negative, p, hn::Sub(hn::Set(FloatTag(), 1.0F), p));
  }
};
#endif

template <typename T>
void forward(const T* x, T* y, std::int64_t count) {
  const Activation<T> f;
  const auto body = [&](auto io, std::int64_t i) SINEW_LAMBDA {
    io.store(apply([&](FloatVec v) SINEW_LAMBDA { return f.value(v); }, io.load(x + i)), y + i);
  };
  if (x == y) {
    for_each_pack<T>(count, body);
  } else {
    for_each_pack_into(y, count, 1, body);
  }
}

template <typename T>
HWY_INLINE PackOf<T> gradient_of(const Activation<T>& f, const PackOf<T>& d_y, const PackOf<T>& x) {
  return apply([&](FloatVec d, FloatVec v) SINEW_LAMBDA { return hn::Mul(d, f.slope(v)); }, d_y, x);
}

template <typename T>
void backward(const T* d_y, const T* x, T* d_x, std::int64_t count) {
  const Activation<T> f;
  const auto body = [&](auto io, std::int64_t i) SINEW_LAMBDA {
    io.store(gradient_of<T>(f, io.load(d_y + i), io.load(x + i)), d_x + i);
  };
  if (d_x == d_y || d_x == x) {
    for_each_pack<T>(count, body);
  } else {
    for_each_pack_into(d_x, count, 2, body);
  }
}

template <typename T>
void bias_forward(T* x, const T* bias, T* y, std::int64_t rows, std::int64_t channels) {
  const Activation<T> f;
  const bool past_cache = rows_bypass_cache(y, rows, channels, 1);
  for (std::int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
    const auto body = [&](auto io, std::int64_t c) SINEW_LAMBDA {
      fetch_ahead(x + c);
      // Backward will read the sum as it is stored, so the activation is that of the rounded value.
      into_cache(io).store(add_packs(io.load(x + c), io.load(bias + c)), x + c);
      io.store(apply([&](FloatVec v) SINEW_LAMBDA { return f.value(v); }, io.load(x + c)), y + c);
    };
    if (past_cache) {
      for_each_pack_past_cache<T>(channels, body);
    } else {
      for_each_pack<T>(channels, body);
    }
  }
  if (past_cache) hwy::FlushStream();
}

// The next `rows` rows of it: their bias gradients are read and written once.
template <int rows, typename T>
HWY_INLINE void bias_backward_rows(const Activation<T>& f, const T* d_y, const T* x, T* d_x,
                                   float* d_bias, std::int64_t channels, std::int64_t count) {
  for_each_pack<T>(count, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    auto sum = io.load(d_bias + c);
    for (int r = 0; r < rows; ++r) {
      const std::int64_t at = r * channels + c;
      hwy::Prefetch(d_y + at + rows * channels);
      hwy::Prefetch(x + at + rows * channels);
      const auto gradient = gradient_of<T>(f, io.load(d_y + at), io.load(x + at));
      sum = add_packs(sum, gradient);
      io.store(gradient, d_x + at);
    }
    io.store(sum, d_bias + c);
  });
}

template <typename T>
void bias_backward(const T* d_y, const T* x, T* d_x, float* d_bias, std::int64_t rows,
                   std::int64_t channels, std::int64_t begin, std::int64_t end) {
  constexpr int kGroup = 2;
  const Activation<T> f;
  std::int64_t r = 0;
  const auto run = [&](auto group) SINEW_LAMBDA {
    const std::int64_t offset = r * channels + begin;
    bias_backward_rows<group()>(f, d_y + offset, x + offset, d_x + offset, d_bias + begin, channels,
                                end - begin);
    r += group();
  };
  while (r + kGroup <= rows) run(std::integral_constant<int, kGroup>());
  while (r < rows) run(std::integral_constant<int, 1>());
}

}  // namespace

#if !SINEW_SIMD_IS_BF16
constexpr GeluFunctions<float> kGeluF32 = {forward<float>, backward<float>, bias_forward<float>,
                                           bias_backward<float>};
#endif
constexpr GeluFunctions<bf16> kGeluBf16 = {forward<bf16>, backward<bf16>, bias_forward<bf16>,
                                           bias_backward<bf16>};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

template <>
const GeluFunctions<float>* gelu_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kGeluF32);
}
template <>
const GeluFunctions<bf16>* gelu_simd(Isa isa) {
  return SINEW_SIMD_BF16_VERSION(isa, kGeluBf16);
}

}  // namespace sinew::kernels
#endif
