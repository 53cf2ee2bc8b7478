// The vector layer norm. Rows go in groups of kGroup through each pass: their sums are independent
// chains, weights are loaded once per group, and all passes but the first find the rows in the
// cache. Each row sum is one chain per lane.
#include <cmath>
#include <type_traits>

#include "kernels/layer_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/simd_inl.h"
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

constexpr int kGroup = 4;

template <int rows>
struct RowVectors {
  FloatVec of[rows];
};

HWY_INLINE FloatVec normed(FloatVec x, FloatVec mean, FloatVec rstd) {
  return hn::Mul(hn::Sub(x, mean), rstd);
}

// Mean and rstd of `rows` rows, given the sums of their elements.
template <int rows, typename T>
HWY_INLINE void statistics(const T* x, std::int64_t channels, const PackOf<T>* sums, float epsilon,
                           float* mean, float* rstd) {
  const auto count = static_cast<float>(channels);
  RowVectors<rows> center;
  PackOf<T> squares[rows];
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    mean[r] = sum_of(sums[r]) / count;
    center.of[r] = hn::Set(FloatTag(), mean[r]);
    squares[r] = same_in_all<T>(0.0F);
  });
  for_each_pack<T>(channels, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    for_rows<rows>([&](auto r) SINEW_LAMBDA {
      const auto add_square = [&](FloatVec distance, FloatVec sum)
                                  SINEW_LAMBDA { return hn::MulAdd(distance, distance, sum); };
      const auto from_center = [&](FloatVec v) SINEW_LAMBDA { return hn::Sub(v, center.of[r]); };
      const auto distance = io.keep(apply(from_center, io.load(x + r * channels + c)));
      hwy::Prefetch(x + (rows + r) * channels + c);
      squares[r] = apply(add_square, distance, squares[r]);
    });
  });
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    rstd[r] = 1.0F / std::sqrt(sum_of(squares[r]) / count + epsilon);
  });
}

template <int rows, typename T>
HWY_INLINE void normalize(const float* mean, const float* rstd, const T* x, const T* weight,
                          const T* bias, T* y, std::int64_t channels, bool past_cache) {
  RowVectors<rows> center;
  RowVectors<rows> scale;
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    center.of[r] = hn::Set(FloatTag(), mean[r]);
    scale.of[r] = hn::Set(FloatTag(), rstd[r]);
  });
  const auto body = [&](auto io, std::int64_t c) SINEW_LAMBDA {
    const auto w = io.load(weight + c);
    const auto b = io.load(bias + c);
    for_rows<rows>([&](auto r) SINEW_LAMBDA {
      const auto function = [&](FloatVec v, FloatVec by, FloatVec plus) SINEW_LAMBDA {
        return hn::MulAdd(normed(v, center.of[r], scale.of[r]), by, plus);
      };
      io.store(apply(function, io.load(x + r * channels + c), w, b), y + r * channels + c);
    });
  };
  if (past_cache) {
    for_each_pack_past_cache<T>(channels, body);
  } else {
    for_each_pack<T>(channels, body);
  }
}

template <int rows, typename T>
HWY_INLINE void forward_group(const T* x, const T* weight, const T* bias, std::int64_t channels,
                              float epsilon, T* y, float* mean, float* rstd, bool past_cache) {
  PackOf<T> sums[rows];
  for (auto& sum : sums) sum = same_in_all<T>(0.0F);
  for_each_pack<T>(channels, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    for_rows<rows>(
        [&](auto r) SINEW_LAMBDA { sums[r] = add_packs(sums[r], io.load(x + r * channels + c)); });
  });
  statistics<rows>(x, channels, sums, epsilon, mean, rstd);
  normalize<rows>(mean, rstd, x, weight, bias, y, channels, past_cache);
}

template <int rows, typename T>
HWY_INLINE void residual_group(T* residual, const T* x, const T* weight, const T* bias,
                               std::int64_t channels, float epsilon, T* y, float* mean, float* rstd,
                               bool past_cache) {
  PackOf<T> sums[rows];
  for (auto& sum : sums) sum = same_in_all<T>(0.0F);
  for_each_pack<T>(channels, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    for_rows<rows>([&](auto r) SINEW_LAMBDA {
      T* target = residual + r * channels + c;
      io.store(add_packs(io.load(target), io.load(x + r * channels + c)), target);
      sums[r] = add_packs(sums[r], io.load(target));  // as it was rounded to T
    });
  });
  statistics<rows>(residual, channels, sums, epsilon, mean, rstd);
  normalize<rows>(mean, rstd, residual, weight, bias, y, channels, past_cache);
}

// group(rows as a constant, first row), for groups of kGroup and then single rows.
template <class Group>
HWY_INLINE void for_each_group(std::int64_t rows, const Group& group) {
  std::int64_t r = 0;
  for (; r + kGroup <= rows; r += kGroup) group(std::integral_constant<int, kGroup>(), r);
  for (; r < rows; ++r) group(std::integral_constant<int, 1>(), r);
}

template <typename T>
void forward(NormShape shape, const T* x, const T* weight, const T* bias, float epsilon, T* y,
             float* mean, float* rstd) {
  const std::int64_t channels = shape.channels;
  const bool past_cache = x != y && rows_bypass_cache(y, shape.rows, channels, 1);
  for_each_group(shape.rows, [&](auto rows, std::int64_t r) SINEW_LAMBDA {
    forward_group<rows()>(x + r * channels, weight, bias, channels, epsilon, y + r * channels,
                          mean + r, rstd + r, past_cache);
  });
  if (past_cache) hwy::FlushStream();
}

template <typename T>
void residual_forward(NormShape shape, T* residual, const T* x, const T* weight, const T* bias,
                      float epsilon, T* y, float* mean, float* rstd) {
  const std::int64_t channels = shape.channels;
  const bool past_cache = x != y && rows_bypass_cache(y, shape.rows, channels, 2);
  for_each_group(shape.rows, [&](auto rows, std::int64_t r) SINEW_LAMBDA {
    residual_group<rows()>(residual + r * channels, x + r * channels, weight, bias, channels,
                           epsilon, y + r * channels, mean + r, rstd + r, past_cache);
  });
  if (past_cache) hwy::FlushStream();
}

// The arrays of a backward pass; those that a half does not need are null.
template <typename T>
struct Backward {
  const T* d_y;
  const T* x;
  const T* weight;
  const float* mean;
  const float* rstd;
  T* d_x;
  float* d_weight;
  float* d_bias;
  std::int64_t channels;  // of a row
  std::int64_t count;     // channels worked on, from where the pointers point
};

enum class Half { kInput, kParameters, kBoth };

// The means of g and g n over each of `rows` rows.
template <int rows, typename T>
HWY_INLINE void gradient_means(const Backward<T>& a, std::int64_t first,
                               const RowVectors<rows>& center, const RowVectors<rows>& scale,
                               RowVectors<rows>& g_mean, RowVectors<rows>& gn_mean) {
  PackOf<T> sum[rows];
  PackOf<T> sum_normed[rows];
  for_rows<rows>([&](auto r) SINEW_LAMBDA { sum[r] = sum_normed[r] = same_in_all<T>(0.0F); });
  for_each_pack<T>(a.channels, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    const auto w = io.load(a.weight + c);
    for_rows<rows>([&](auto r) SINEW_LAMBDA {
      const std::int64_t at = (first + r) * a.channels + c;
      const auto times = [](FloatVec p, FloatVec q) SINEW_LAMBDA { return hn::Mul(p, q); };
      const auto g = apply(times, io.load(a.d_y + at), w);  // 0 past the end
      const auto add_product = [&](FloatVec v, FloatVec by, FloatVec plus) SINEW_LAMBDA {
        return hn::MulAdd(normed(v, center.of[r], scale.of[r]), by, plus);
      };
      sum[r] = add_packs(sum[r], g);
      sum_normed[r] = apply(add_product, io.load(a.x + at), g, sum_normed[r]);
    });
  });
  const float part = 1.0F / static_cast<float>(a.channels);
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    g_mean.of[r] = hn::Set(FloatTag(), sum_of(sum[r]) * part);
    gn_mean.of[r] = hn::Set(FloatTag(), sum_of(sum_normed[r]) * part);
  });
}

template <int rows, Half half, Write mode, typename T>
HWY_INLINE void backward_group(const Backward<T>& a, std::int64_t first) {
  constexpr bool kInput = half != Half::kParameters;
  constexpr bool kParameters = half != Half::kInput;
  RowVectors<rows> center, scale, g_mean, gn_mean;
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    center.of[r] = hn::Set(FloatTag(), a.mean[first + r]);
    scale.of[r] = hn::Set(FloatTag(), a.rstd[first + r]);
  });
  if constexpr (kInput) gradient_means<rows>(a, first, center, scale, g_mean, gn_mean);
  for_each_pack<T>(a.count, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    PackOf<T> weight, d_weight, d_bias;
    if constexpr (kInput) weight = io.load(a.weight + c);
    if constexpr (kParameters) {
      d_weight = io.load(a.d_weight + c);
      d_bias = io.load(a.d_bias + c);
    }
    for_rows<rows>([&](auto r) SINEW_LAMBDA {
      const std::int64_t at = (first + r) * a.channels + c;
      const auto d_y = io.load(a.d_y + at);
      const auto to_normed = [&](FloatVec v)
                                 SINEW_LAMBDA { return normed(v, center.of[r], scale.of[r]); };
      const auto n = apply(to_normed, io.load(a.x + at));
      hwy::Prefetch(a.x + at + rows * a.channels);
      hwy::Prefetch(a.d_y + at + rows * a.channels);
      if constexpr (kParameters) {
        const auto add_product = [](FloatVec p, FloatVec q, FloatVec plus)
                                     SINEW_LAMBDA { return hn::MulAdd(p, q, plus); };
        d_weight = apply(add_product, d_y, n, d_weight);
        d_bias = add_packs(d_bias, d_y);
      }
      if constexpr (kInput) {
        const auto centered = [&](FloatVec d, FloatVec w, FloatVec v) SINEW_LAMBDA {
          const auto g = hn::Sub(hn::Mul(d, w), g_mean.of[r]);
          return hn::NegMulAdd(v, gn_mean.of[r], g);
        };
        const auto value = apply(centered, d_y, weight, n);
        const auto scaled = [&](FloatVec v) SINEW_LAMBDA { return hn::Mul(v, scale.of[r]); };
        const auto added = [&](FloatVec v, FloatVec old)
                               SINEW_LAMBDA { return hn::MulAdd(v, scale.of[r], old); };
        if constexpr (mode == Write::kAccumulate) {
          io.store(apply(added, value, io.load(a.d_x + at)), a.d_x + at);
        } else {
          io.store(apply(scaled, value), a.d_x + at);
        }
      }
    });
    if constexpr (kParameters) {
      io.store(d_weight, a.d_weight + c);
      io.store(d_bias, a.d_bias + c);
    }
  });
}

template <Half half, typename T>
HWY_INLINE void backward_rows(std::int64_t all_rows, const Backward<T>& a, Write d_x_mode) {
  for_each_group(all_rows, [&](auto rows, std::int64_t r) SINEW_LAMBDA {
    if (d_x_mode == Write::kAccumulate) {
      backward_group<rows(), half, Write::kAccumulate>(a, r);
    } else {
      backward_group<rows(), half, Write::kAssign>(a, r);
    }
  });
}

template <typename T>
void backward(NormShape shape, const T* d_y, const T* x, const T* weight, const float* mean,
              const float* rstd, Write d_x_mode, T* d_x, float* d_weight, float* d_bias) {
  backward_rows<Half::kBoth>(shape.rows,
                             Backward<T>{d_y, x, weight, mean, rstd, d_x, d_weight, d_bias,
                                         shape.channels, shape.channels},
                             d_x_mode);
}

template <typename T>
void backward_input(NormShape shape, const T* d_y, const T* x, const T* weight, const float* mean,
                    const float* rstd, Write d_x_mode, T* d_x) {
  backward_rows<Half::kInput>(shape.rows,
                              Backward<T>{d_y, x, weight, mean, rstd, d_x, nullptr, nullptr,
                                          shape.channels, shape.channels},
                              d_x_mode);
}

template <typename T>
void backward_parameters(NormShape shape, const T* d_y, const T* x, const float* mean,
                         const float* rstd, float* d_weight, float* d_bias, std::int64_t begin,
                         std::int64_t end) {
  const Backward<T> a{d_y + begin, x + begin,        nullptr,        mean,           rstd,
                      nullptr,     d_weight + begin, d_bias + begin, shape.channels, end - begin};
  for_each_group(shape.rows, [&](auto rows, std::int64_t r) SINEW_LAMBDA {
    backward_group<rows(), Half::kParameters, Write::kAssign>(a, r);
  });
}

}  // namespace

constexpr LayerNormFunctions<float> kLayerNormF32 = {forward<float>, residual_forward<float>,
                                                     backward<float>, backward_input<float>,
                                                     backward_parameters<float>};
constexpr LayerNormFunctions<bf16> kLayerNormBf16 = {forward<bf16>, residual_forward<bf16>,
                                                     backward<bf16>, backward_input<bf16>,
                                                     backward_parameters<bf16>};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

template <>
const LayerNormFunctions<float>* layer_norm_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kLayerNormF32);
}
template <>
const LayerNormFunctions<bf16>* layer_norm_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kLayerNormBf16);
}

}  // namespace sinew::kernels
#endif
