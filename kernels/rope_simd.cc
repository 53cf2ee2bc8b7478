// The vector rotary embedding: both halves of a head pass at once.
#include "kernels/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

template <Turn direction, typename T>
HWY_INLINE void turn_head(T* first, T* second, const float* cosine, const float* sine,
                          std::int64_t half) {
  const auto minus = [](FloatVec a, FloatVec c, FloatVec b, FloatVec s)
                         SINEW_LAMBDA { return hn::NegMulAdd(b, s, hn::Mul(a, c)); };
  const auto plus = [](FloatVec a, FloatVec c, FloatVec b, FloatVec s)
                        SINEW_LAMBDA { return hn::MulAdd(b, s, hn::Mul(a, c)); };
  for_each_pack<T>(half, [&](auto io, std::int64_t i) SINEW_LAMBDA {
    const auto a = io.load(first + i);
    const auto b = io.load(second + i);
    const auto c = io.load(cosine + i);
    const auto s = io.load(sine + i);
    if constexpr (direction == Turn::kForward) {
      io.store(apply(minus, a, c, b, s), first + i);
      io.store(apply(plus, b, c, a, s), second + i);
    } else {
      io.store(apply(plus, a, c, b, s), first + i);
      io.store(apply(minus, b, c, a, s), second + i);
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
    for (std::int64_t h = 0; h < shape.heads; ++h, token += shape.head_dim) {
      if (direction == Turn::kForward) {
        turn_head<Turn::kForward>(token, token + half, cosine + t * half, sine + t * half, half);
      } else {
        turn_head<Turn::kBack>(token, token + half, cosine + t * half, sine + t * half, half);
      }
    }
  }
}

}  // namespace

constexpr RopeFunctions<float> kRopeF32 = {turn<float>};
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
  return SINEW_SIMD_VERSION(isa, kRopeBf16);
}

}  // namespace sinew::kernels
#endif
