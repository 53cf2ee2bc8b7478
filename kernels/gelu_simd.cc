// The vector GELU. With z = 2 sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh(z/2))/2 = 1/(1 + exp(-z)),
// so
//   y = x / (1 + exp(-z)),   y' = s + x s^2 exp(-z) z',   s = 1/(1 + exp(-z)).
// s^2 exp(-z) is s (1 - s) without the cancellation. z is computed from x clamped to |x| <= 9.9,
// where |z| <= 85: beyond, s is 0 or 1 to within 1e-36, and infinities stay harmless (gelu(-inf) is
// -1e-36, not NaN). Error, float, u = 2^-24: z has relative error 3u and exp adds 2u, so |y -
// exact| <= 4 u |x|; |y' - exact| <= 12 u. bf16 adds its one rounding.
#include "kernels/gelu.h"
#include "kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gelu_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/simd_inl.h"
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

constexpr float kTwoRoot = 1.5957691216057308F;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715F;
constexpr float kClamp = 9.9F;

HWY_INLINE FloatVec gelu(FloatVec x) {
  const FloatTag d;
  // The operand order passes a NaN on.
  const auto low = hn::Max(hn::Set(d, -kClamp), x);
  const auto v = hn::Min(hn::Set(d, kClamp), low);
  const auto factor =
      hn::MulAdd(hn::Mul(v, v), hn::Set(d, -kTwoRoot * kCubic), hn::Set(d, -kTwoRoot));
  const auto e = exp_in_range(hn::Mul(v, factor));
  return hn::Div(low, hn::Add(e, hn::Set(d, 1.0F)));
}

HWY_INLINE FloatVec gelu_slope(FloatVec x) {
  const FloatTag d;
  const auto v = hn::Min(hn::Set(d, kClamp), hn::Max(hn::Set(d, -kClamp), x));
  const auto square = hn::Mul(v, v);
  const auto factor = hn::MulAdd(square, hn::Set(d, -kTwoRoot * kCubic), hn::Set(d, -kTwoRoot));
  const auto z_slope = hn::MulAdd(square, hn::Set(d, 3 * kTwoRoot * kCubic), hn::Set(d, kTwoRoot));
  const auto e = exp_in_range(hn::Mul(v, factor));
  const auto s = hn::Div(hn::Set(d, 1.0F), hn::Add(e, hn::Set(d, 1.0F)));
  return hn::MulAdd(hn::Mul(hn::Mul(v, z_slope), s), hn::Mul(e, s), s);
}

template <typename T>
void forward(const T* x, T* y, std::int64_t count) {
  const auto body = [&](auto io, std::int64_t i) SINEW_LAMBDA {
    io.store(apply([](FloatVec v) SINEW_LAMBDA { return gelu(v); }, io.load(x + i)), y + i);
  };
  if (x == y) {
    for_each_pack<T>(count, body);
  } else {
    for_each_pack_into(y, count, 1, body);
  }
}

template <typename T>
HWY_INLINE PackOf<T> gradient_of(const PackOf<T>& d_y, const PackOf<T>& x) {
  return apply([](FloatVec d, FloatVec v) SINEW_LAMBDA { return hn::Mul(d, gelu_slope(v)); }, d_y,
               x);
}

template <typename T>
void backward(const T* d_y, const T* x, T* d_x, std::int64_t count) {
  const auto body = [&](auto io, std::int64_t i) SINEW_LAMBDA {
    io.store(gradient_of<T>(io.load(d_y + i), io.load(x + i)), d_x + i);
  };
  if (d_x == d_y || d_x == x) {
    for_each_pack<T>(count, body);
  } else {
    for_each_pack_into(d_x, count, 2, body);
  }
}

template <typename T>
void bias_forward(T* x, const T* bias, T* y, std::int64_t rows, std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
    for_each_pack<T>(channels, [&](auto io, std::int64_t c) SINEW_LAMBDA {
      // Backward will read the sum as it is stored, so the activation is that of the rounded value.
      io.store(add_packs(io.load(x + c), io.load(bias + c)), x + c);
      io.store(apply([](FloatVec v) SINEW_LAMBDA { return gelu(v); }, io.load(x + c)), y + c);
    });
  }
}

template <typename T>
void bias_backward(const T* d_y, const T* x, T* d_x, float* d_bias, std::int64_t rows,
                   std::int64_t channels, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t offset = r * channels + begin;
    for_each_pack<T>(end - begin, [&](auto io, std::int64_t c) SINEW_LAMBDA {
      const auto gradient = gradient_of<T>(io.load(d_y + offset + c), io.load(x + offset + c));
      io.store(add_packs(io.load(d_bias + begin + c), gradient), d_bias + begin + c);
      io.store(gradient, d_x + offset + c);
    });
  }
}

}  // namespace

constexpr GeluFunctions<float> kGeluF32 = {forward<float>, backward<float>, bias_forward<float>,
                                           bias_backward<float>};
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
  return SINEW_SIMD_VERSION(isa, kGeluBf16);
}

}  // namespace sinew::kernels
#endif
