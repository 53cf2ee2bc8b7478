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

// Packs [i, i + packs) of the halves of every head of a token. cosine and sine are loaded, and for
// bf16 taken apart, once for all heads.
template <Turn direction, int packs, typename T, class Io>
HWY_INLINE void turn_packs(Io io, const RopeShape& shape, T* token, const float* cosine,
                           const float* sine, std::int64_t i) {
  const auto minus = [](FloatVec a, FloatVec c, FloatVec b, FloatVec s)
                         SINEW_LAMBDA { return hn::NegMulAdd(b, s, hn::Mul(a, c)); };
  const auto plus = [](FloatVec a, FloatVec c, FloatVec b, FloatVec s)
                        SINEW_LAMBDA { return hn::MulAdd(b, s, hn::Mul(a, c)); };
  PackOf<T> c[packs], s[packs];
  for_rows<packs>([&](auto p) SINEW_LAMBDA {
    c[p] = io.load(cosine + i + p * kPackElements<T>);
    s[p] = io.load(sine + i + p * kPackElements<T>);
  });
  T* head = token + i;
  for (std::int64_t h = 0; h < shape.heads; ++h, head += shape.head_dim) {
    for_rows<packs>([&](auto p) SINEW_LAMBDA {
      T* first = head + p * kPackElements<T>;
      T* second = first + shape.head_dim / 2;
      const auto a = io.load(first);
      const auto b = io.load(second);
      if constexpr (direction == Turn::kForward) {
        io.store(apply(minus, a, c[p], b, s[p]), first);
        io.store(apply(plus, b, c[p], a, s[p]), second);
      } else {
        io.store(apply(plus, a, c[p], b, s[p]), first);
        io.store(apply(minus, b, c[p], a, s[p]), second);
      }
    });
  }
}

// Two packs at a time where they are there, so that the usual heads pass by in the order of memory.
template <Turn direction, typename T>
HWY_INLINE void turn_token(const RopeShape& shape, T* token, const float* cosine,
                           const float* sine) {
  constexpr std::int64_t kStep = kPackElements<T>;
  const std::int64_t half = shape.head_dim / 2;
  const Whole<T> io;
  std::int64_t i = 0;
  for (; i + 2 * kStep <= half; i += 2 * kStep)
    turn_packs<direction, 2>(io, shape, token, cosine, sine, i);
  for (; i + kStep <= half; i += kStep) turn_packs<direction, 1>(io, shape, token, cosine, sine, i);
  if (i == half) return;
  turn_packs<direction, 1>(First<T>{static_cast<std::size_t>(half - i)}, shape, token, cosine, sine,
                           i);
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
