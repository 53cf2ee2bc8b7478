// The vector cross entropy parts. Sums of exponentials run in blocks of kBlock columns, so that no
// chain of f32 additions is longer than a block's or the number of blocks.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cross_entropy.h"

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/simd_inl.h"
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kBlock = 1024;

template <typename T>
HWY_INLINE float row_maximum(const T* logits, std::int64_t count) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  constexpr std::int64_t kStep = kPackElements<T>;
  const auto larger = [](FloatVec a, FloatVec b) SINEW_LAMBDA { return hn::Max(a, b); };
  const Whole<T> io;
  auto max0 = same_in_all<T>(kLowest);
  auto max1 = max0;
  std::int64_t c = 0;
  for (; c + 2 * kStep <= count; c += 2 * kStep) {
    max0 = apply(larger, max0, io.load(logits + c));
    max1 = apply(larger, max1, io.load(logits + c + kStep));
  }
  max0 = apply(larger, max0, max1);
  float result = kLowest;
  for (const FloatVec& v : max0.v) {
    result = std::fmax(result, hn::GetLane(hn::MaxOfLanes(FloatTag(), v)));
  }
  for (; c < count; ++c) result = std::fmax(result, widen(logits[c]));
  return result;
}

template <typename T>
void max(const CrossEntropyShape& shape, const T* logits, float* row_max) {
  const std::int64_t valid = valid_columns(shape);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    row_max[r] = row_maximum(logits + r * shape.columns, valid);
  }
}

template <typename T>
HWY_INLINE float row_sum(const T* logits, std::int64_t count, float shift) {
  const auto row_max = hn::Set(FloatTag(), shift);
  const auto weight = [&](FloatVec v) SINEW_LAMBDA { return exp_or_zero<T>(hn::Sub(v, row_max)); };
  float sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const T* block = logits + begin;
    const std::int64_t length = count - begin < kBlock ? count - begin : kBlock;
    const auto add = [&](auto io, std::int64_t c, const PackOf<T>& before) SINEW_LAMBDA {
      return add_packs(before, io.keep(apply(weight, io.load(block + c))));
    };
    sum += sum_over<T>(length, add);
  }
  return sum;
}

template <typename T>
void sums(const CrossEntropyShape& shape, const T* logits, const std::int32_t* targets,
          const float* row_max, float* sum_exp, float* target_logit) {
  const std::int64_t valid = valid_columns(shape);
  for (std::int64_t r = 0; r < shape.rows; ++r, logits += shape.columns) {
    sum_exp[r] = row_sum(logits, valid, row_max[r]);
    const std::int64_t target = own_target(shape, targets[r]);
    target_logit[r] = target >= 0 ? widen(logits[target]) - row_max[r] : 0.0F;
  }
}

template <typename T>
void backward(const CrossEntropyShape& shape, T* logits, const std::int32_t* targets,
              const float* row_max, const float* sum_exp, float scale) {
  const std::int64_t valid = valid_columns(shape);
  for (std::int64_t r = 0; r < shape.rows; ++r, logits += shape.columns) {
    if (targets[r] < 0) {
      std::memset(static_cast<void*>(logits), 0,
                  static_cast<std::size_t>(shape.columns) * sizeof(T));
      continue;
    }
    const std::int64_t target = own_target(shape, targets[r]);
    const float factor = scale / sum_exp[r];
    // The target's probability is subtracted from before it is rounded to T.
    const float target_gradient =
        target >= 0 ? std::exp(widen(logits[target]) - row_max[r]) * factor - scale : 0.0F;
    const auto shift = hn::Set(FloatTag(), row_max[r]);
    const auto scaled = hn::Set(FloatTag(), factor);
    for_each_pack<T>(valid, [&](auto io, std::int64_t c) SINEW_LAMBDA {
      const auto probability = [&](FloatVec v) SINEW_LAMBDA {
        return hn::Mul(exp_or_zero<T>(hn::Sub(v, shift)), scaled);
      };
      io.store(apply(probability, io.load(logits + c)), logits + c);
    });
    if (target >= 0) logits[target] = narrow<T>(target_gradient);
    std::memset(static_cast<void*>(logits + valid), 0,
                static_cast<std::size_t>(shape.columns - valid) * sizeof(T));
  }
}

}  // namespace

#if !SINEW_SIMD_IS_BF16
constexpr CrossEntropyFunctions<float> kCrossEntropyF32 = {max<float>, sums<float>,
                                                           backward<float>};
#endif
constexpr CrossEntropyFunctions<bf16> kCrossEntropyBf16 = {max<bf16>, sums<bf16>, backward<bf16>};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

template <>
const CrossEntropyFunctions<float>* cross_entropy_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kCrossEntropyF32);
}
template <>
const CrossEntropyFunctions<bf16>* cross_entropy_simd(Isa isa) {
  return SINEW_SIMD_BF16_VERSION(isa, kCrossEntropyBf16);
}

}  // namespace sinew::kernels
#endif
