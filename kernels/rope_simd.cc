// The vector rotary embedding: both halves of a head pass at once, all heads of a token together.
#include "kernels/rope.h"

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

// The heads of one token. cosine and sine are loaded, and for bf16 taken apart, once for all heads.
template <Turn direction, typename T>
HWY_INLINE void turn_token(const RopeShape& shape, T* token, const float* cosine,
                           const float* sine) {
  const auto minus = [](FloatVec a, FloatVec c, FloatVec b, FloatVec s)
                         SINEW_LAMBDA { return hn::NegMulAdd(b, s, hn::Mul(a, c)); };
  const auto plus = [](FloatVec a, FloatVec c, FloatVec b, FloatVec s)
                        SINEW_LAMBDA { return hn::MulAdd(b, s, hn::Mul(a, c)); };
  const std::int64_t half = shape.head_dim / 2;
  for_each_pack<T>(half, [&](auto io, std::int64_t i) SINEW_LAMBDA {
    const auto c = io.load(cosine + i);
    const auto s = io.load(sine + i);
    T* first = token + i;
    T* second = first + half;
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const auto a = io.load(first);
      const auto b = io.load(second);
      if constexpr (direction == Turn::kForward) {
        io.store(apply(minus, a, c, b, s), first);
        io.store(apply(plus, b, c, a, s), second);
      } else {
        io.store(apply(plus, a, c, b, s), first);
        io.store(apply(minus, b, c, a, s), second);
      }
      first += shape.head_dim;
      second += shape.head_dim;
    }
  });
}

template <typename T>
void turn(const RopeShape& shape, HeadView<T> x, const float* cosine, const float* sine,
          Turn direction, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = shape.head_dim / 2;
  for (std::int64_t at = begin; at < end; ++at) {
    const std::int64_t t = at % shape.time;
    T* token = x.data + at / shape.time * x.batch_stride + t * x.time_stride;
    if (direction == Turn::kForward) {
      turn_token<Turn::kForward>(shape, token, cosine + t * half, sine + t * half);
    } else {
      turn_token<Turn::kBack>(shape, token, cosine + t * half, sine + t * half);
    }
  }
}

}  // namespace

#if !SINEW_SIMD_IS_BF16
constexpr RopeFunctions<float> kRopeF32 = {turn<float>};
#endif
constexpr RopeFunctions<bf16> kRopeBf16 = {turn<bf16>};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

template <>
const RopeFunctions<float>* rope_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kRopeF32);
}
template <>
const RopeFunctions<bf16>* rope_simd(Isa isa) {
  return SINEW_SIMD_BF16_VERSION(isa, kRopeBf16);
}

}  // namespace sinew::kernels
#endif
