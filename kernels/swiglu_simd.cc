// The vector SwiGLU. With s = 1/(1 + exp(-x)): silu(x) = x s and silu'(x) = s + x s^2 exp(-x),
// where s^2 exp(-x) is s (1 - s) without the cancellation. x is clamped to |x| <= 85 for the
// exponential: beyond, s is 0 or 1 to within 1e-36, and infinities stay harmless (silu(-inf) is
// -1e-35, not NaN).
//
// bf16 on AVX-512: with q(a) = 1 - s(a), a = |x|, as quadratics up to a = 13, where it is below
// 3e-6 and ends,
//   silu = max(x, 0) - a q,   silu' = p for x < 0, else 1 - p,   p = q - a q (1 - q).
// Its third derivative is at most 1/8, so that q is off by at most 4.9e-5 (quadratics.h; 4.0e-5
// measured at all floats) and p by no more: the derivative of p in q, 1 - a (1 - 2 q), is large
// only where that of q is small.
#include "kernels/swiglu.h"

#include <cmath>

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include <type_traits>

#include "kernels/quadratics_simd_inl.h"
#include "kernels/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

constexpr float kClamp = 85.0F;

template <typename T>
HWY_INLINE FloatVec exp_of_minus(FloatVec x) {
  return exp_of_scaled<T>(hn::Mul(x, hn::Set(FloatTag(), -kExpScale)));
}

template <typename T>
HWY_INLINE FloatVec silu(FloatVec x) {
  const FloatTag d;
  // The operand order passes a NaN on.
  const auto low = hn::Max(hn::Set(d, -kClamp), x);
  const auto e = exp_of_minus<T>(hn::Min(hn::Set(d, kClamp), low));
  return hn::Div(low, hn::Add(e, hn::Set(d, 1.0F)));
}

// silu(x) into `value`, its derivative into `slope`.
template <typename T>
HWY_INLINE void silu_and_slope(FloatVec x, FloatVec& value, FloatVec& slope) {
  const FloatTag d;
  const auto low = hn::Max(hn::Set(d, -kClamp), x);
  const auto v = hn::Min(hn::Set(d, kClamp), low);
  const auto e = exp_of_minus<T>(v);
  const auto s = hn::Div(hn::Set(d, 1.0F), hn::Add(e, hn::Set(d, 1.0F)));
  value = hn::Mul(low, s);
  slope = hn::MulAdd(hn::Mul(v, s), hn::Mul(e, s), s);
}

// silu and its derivative of elements of T on vectors: constants are made once for a call.
template <typename T>
struct Silu {
  HWY_INLINE FloatVec value(FloatVec x) const { return silu<T>(x); }
  HWY_INLINE void both(FloatVec x, FloatVec& value, FloatVec& slope) const {
    silu_and_slope<T>(x, value, slope);
  }
};
#if HWY_TARGET <= HWY_AVX3
template <>
struct Silu<bf16> {
  const Quadratics& tail = tails();

  static const Quadratics& tails() {
    constexpr float kLastSegment = 13.0F;
    static const Quadratics quadratics(kLastSegment,
                                       [](double a) { return 1 / (1 + std::exp(a)); });
    return quadratics;
  }
  HWY_INLINE FloatVec value(FloatVec x) const {
    FloatVec a;
    const auto q = value_of(tail, x, a);
    return hn::NegMulAdd(a, q, hn::Max(x, hn::Zero(FloatTag())));
  }
  HWY_INLINE void both(FloatVec x, FloatVec& value, FloatVec& slope) const {
    const FloatTag d;
    FloatVec a;
    const auto q = value_of(tail, x, a);
    value = hn::NegMulAdd(a, q, hn::Max(x, hn::Zero(d)));
    const auto p = hn::NegMulAdd(a, hn::NegMulAdd(q, q, q), q);
    slope = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), p, hn::Sub(hn::Set(d, 1.0F), p));
  }
};
#endif

template <typename T>
void forward(const GatedShape& shape, const T* gate, const T* up, T* y) {
  const Silu<T> f;
  const bool past_cache = rows_bypass_cache(y, shape.rows, shape.channels, 2);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const auto body = [&](auto io, std::int64_t c) SINEW_LAMBDA {
      const auto gated = [&](FloatVec g, FloatVec u)
                             SINEW_LAMBDA { return hn::Mul(f.value(g), u); };
      io.store(apply(gated, io.load(gate + c), io.load(up + c)), y + c);
    };
    if (past_cache) {
      for_each_pack_past_cache<T>(shape.channels, body);
    } else {
      for_each_pack<T>(shape.channels, body);
    }
    gate += shape.gate_stride;
    up += shape.gate_stride;
    y += shape.channels;
  }
  if (past_cache) hwy::FlushStream();
}

template <typename T>
void backward(const GatedShape& shape, const T* d_y, const T* gate, const T* up, T* d_gate,
              T* d_up) {
  const Silu<T> f;
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for_each_pack<T>(shape.channels, [&](auto io, std::int64_t c) SINEW_LAMBDA {
      const auto d = io.load(d_y + c);
      const auto g = io.load(gate + c);
      const auto u = io.load(up + c);
      PackOf<T> to_gate, to_up;
      for_rows<static_cast<int>(kPackVectors<T>)>([&](auto k) SINEW_LAMBDA {
        FloatVec value, slope;
        f.both(g.v[k], value, slope);
        to_up.v[k] = hn::Mul(d.v[k], value);
        to_gate.v[k] = hn::Mul(hn::Mul(d.v[k], u.v[k]), slope);
      });
      io.store(to_up, d_up + c);
      io.store(to_gate, d_gate + c);
    });
    gate += shape.gate_stride;
    up += shape.gate_stride;
    d_gate += shape.gate_stride;
    d_up += shape.gate_stride;
    d_y += shape.channels;
  }
}

}  // namespace

#if !SINEW_SIMD_IS_BF16
constexpr SwigluFunctions<float> kSwigluF32 = {forward<float>, backward<float>};
#endif
constexpr SwigluFunctions<bf16> kSwigluBf16 = {forward<bf16>, backward<bf16>};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

template <>
const SwigluFunctions<float>* swiglu_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kSwigluF32);
}
template <>
const SwigluFunctions<bf16>* swiglu_simd(Isa isa) {
  return SINEW_SIMD_BF16_VERSION(isa, kSwigluBf16);
}

}  // namespace sinew::kernels
#endif
