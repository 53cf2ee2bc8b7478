// The vector GELU. With z = 2 sqrt(2/pi) (x + 0.044715 x^3), (1 + tanh(z/2))/2 = 1/(1 + exp(-z)),
// so
//   y = x / (1 + exp(-z)),   y' = s + x s^2 exp(-z) z',   s = 1/(1 + exp(-z)).
// s^2 exp(-z) is s (1 - s) without the cancellation.
// Error, float, u = 2^-24: z has relative error 3u and exp adds 2u, so |y - exact| <= 4 u |x|;
// |y' - exact| <= 12 u. bf16 adds its one rounding.
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

using Float = hn::ScalableTag<float>;
constexpr float kTwoRoot = 1.5957691216057308F;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715F;

HWY_INLINE hn::Vec<Float> gelu(hn::Vec<Float> x) {
  const Float d;
  const auto slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, kTwoRoot * kCubic), hn::Set(d, kTwoRoot));
  const auto e = exp_any(d, hn::Neg(hn::Mul(x, slope)));
  return hn::Div(x, hn::Add(e, hn::Set(d, 1.0F)));
}

HWY_INLINE hn::Vec<Float> gelu_slope(hn::Vec<Float> x) {
  const Float d;
  // Beyond 9.5 the slope is 0 or 1 to within 1e-31; the clamp keeps infinity times 0 away. The
  // operand order passes a NaN on.
  const auto v = hn::Min(hn::Set(d, 9.5F), hn::Max(hn::Set(d, -9.5F), x));
  const auto square = hn::Mul(v, v);
  const auto z =
      hn::Mul(v, hn::MulAdd(square, hn::Set(d, kTwoRoot * kCubic), hn::Set(d, kTwoRoot)));
  const auto z_slope = hn::MulAdd(square, hn::Set(d, 3 * kTwoRoot * kCubic), hn::Set(d, kTwoRoot));
  const auto e = exp_below_overflow(d, hn::Neg(z));
  const auto s = hn::Div(hn::Set(d, 1.0F), hn::Add(e, hn::Set(d, 1.0F)));
  return hn::MulAdd(hn::Mul(hn::Mul(v, z_slope), s), hn::Mul(e, s), s);
}

template <typename T>
void forward(const T* x, T* y, std::int64_t count) {
  const Float d;
  const auto body = [&](auto io, std::int64_t i)
                        HWY_ATTR { io.store(gelu(io.load(d, x + i)), d, y + i); };
  if (x == y) {
    for_each_vector(d, count, body);
  } else {
    for_each_vector_into(d, y, count, 1, body);
  }
}

template <typename T>
void backward(const T* d_y, const T* x, T* d_x, std::int64_t count) {
  const Float d;
  const auto body = [&](auto io, std::int64_t i) HWY_ATTR {
    io.store(hn::Mul(io.load(d, d_y + i), gelu_slope(io.load(d, x + i))), d, d_x + i);
  };
  if (d_x == d_y || d_x == x) {
    for_each_vector(d, count, body);
  } else {
    for_each_vector_into(d, d_x, count, 2, body);
  }
}

template <typename T>
void bias_forward(T* x, const T* bias, T* y, std::int64_t rows, std::int64_t channels) {
  const Float d;
  for (std::int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
    for_each_vector(d, channels, [&](auto io, std::int64_t c) HWY_ATTR {
      // What backward will read: the value as it is stored, rounded to T.
      io.store(hn::Add(io.load(d, x + c), io.load(d, bias + c)), d, x + c);
      io.store(gelu(io.load(d, x + c)), d, y + c);
    });
  }
}

template <typename T>
void bias_backward(const T* d_y, const T* x, T* d_x, float* d_bias, std::int64_t rows,
                   std::int64_t channels, std::int64_t begin, std::int64_t end) {
  const Float d;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t offset = r * channels + begin;
    for_each_vector(d, end - begin, [&](auto io, std::int64_t c) HWY_ATTR {
      const auto gradient =
          hn::Mul(io.load(d, d_y + offset + c), gelu_slope(io.load(d, x + offset + c)));
      io.store(hn::Add(io.load(d, d_bias + begin + c), gradient), d, d_bias + begin + c);
      io.store(gradient, d, d_x + offset + c);
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
