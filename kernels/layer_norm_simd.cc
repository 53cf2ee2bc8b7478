// The vector layer norm. A row is read from memory once; the passes over it run in the first-level
// cache. Row sums run in 4 x lanes chains of f32.
#include <cmath>

#include "kernels/layer_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/simd_inl.h"
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

using Float = hn::ScalableTag<float>;

struct Statistics {
  float mean;
  float rstd;
};

template <typename T>
HWY_INLINE Statistics statistics(const T* x, std::int64_t channels, float sum, float epsilon) {
  const Float d;
  const float mean = sum / static_cast<float>(channels);
  const auto center = hn::Set(d, mean);
  const float squares = sum_over(d, channels, [&](auto io, std::int64_t c) HWY_ATTR {
    const auto distance = io.keep(d, hn::Sub(io.load(d, x + c), center));
    return hn::Mul(distance, distance);
  });
  return {mean, 1.0F / std::sqrt(squares / static_cast<float>(channels) + epsilon)};
}

template <typename T>
HWY_INLINE void normalize(Statistics s, const T* x, const T* weight, const T* bias, T* y,
                          std::int64_t channels, bool past_cache) {
  const Float d;
  const auto center = hn::Set(d, s.mean);
  const auto rstd = hn::Set(d, s.rstd);
  const auto body = [&](auto io, std::int64_t c) HWY_ATTR {
    const auto normed = hn::Mul(hn::Sub(io.load(d, x + c), center), rstd);
    io.store(hn::MulAdd(normed, io.load(d, weight + c), io.load(d, bias + c)), d, y + c);
  };
  if (past_cache) {
    for_each_vector_past_cache(d, channels, body);
  } else {
    for_each_vector(d, channels, body);
  }
}

template <typename T>
void forward(NormShape shape, const T* x, const T* weight, const T* bias, float epsilon, T* y,
             float* mean, float* rstd) {
  const Float d;
  const std::int64_t channels = shape.channels;
  const bool past_cache = x != y && rows_bypass_cache(d, y, shape.rows, channels, 1);
  for (std::int64_t r = 0; r < shape.rows; ++r, x += channels, y += channels) {
    const float sum =
        sum_over(d, channels, [&](auto io, std::int64_t c) HWY_ATTR { return io.load(d, x + c); });
    const Statistics s = statistics(x, channels, sum, epsilon);
    normalize(s, x, weight, bias, y, channels, past_cache);
    mean[r] = s.mean;
    rstd[r] = s.rstd;
  }
  if (past_cache) hwy::FlushStream();
}

template <typename T>
void residual_forward(NormShape shape, T* residual, const T* x, const T* weight, const T* bias,
                      float epsilon, T* y, float* mean, float* rstd) {
  const Float d;
  const std::int64_t channels = shape.channels;
  const bool past_cache = x != y && rows_bypass_cache(d, y, shape.rows, channels, 2);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const float sum = sum_over(d, channels, [&](auto io, std::int64_t c) HWY_ATTR {
      io.store(hn::Add(io.load(d, residual + c), io.load(d, x + c)), d, residual + c);
      return io.load(d, residual + c);  // as it was rounded to T
    });
    const Statistics s = statistics(residual, channels, sum, epsilon);
    normalize(s, residual, weight, bias, y, channels, past_cache);
    mean[r] = s.mean;
    rstd[r] = s.rstd;
    residual += channels;
    x += channels;
    y += channels;
  }
  if (past_cache) hwy::FlushStream();
}

template <typename T, Write mode>
void backward_rows(NormShape shape, const T* d_y, const T* x, const T* weight, const float* mean,
                   const float* rstd, T* d_x) {
  const Float d;
  const std::int64_t channels = shape.channels;
  const float part = 1.0F / static_cast<float>(channels);
  for (std::int64_t r = 0; r < shape.rows; ++r, d_y += channels, x += channels, d_x += channels) {
    const auto center = hn::Set(d, mean[r]);
    const auto scale = hn::Set(d, rstd[r]);
    auto sum = hn::Zero(d);
    auto sum_normed = hn::Zero(d);
    for_each_vector(d, channels, [&](auto io, std::int64_t c) HWY_ATTR {
      const auto normed = hn::Mul(hn::Sub(io.load(d, x + c), center), scale);
      const auto g = hn::Mul(io.load(d, d_y + c), io.load(d, weight + c));  // 0 past the end
      sum = hn::Add(sum, g);
      sum_normed = hn::MulAdd(g, normed, sum_normed);
    });
    const auto g_mean = hn::Mul(hn::SumOfLanes(d, sum), hn::Set(d, part));
    const auto gn_mean = hn::Mul(hn::SumOfLanes(d, sum_normed), hn::Set(d, part));
    for_each_vector(d, channels, [&](auto io, std::int64_t c) HWY_ATTR {
      const auto normed = hn::Mul(hn::Sub(io.load(d, x + c), center), scale);
      const auto g = hn::Mul(io.load(d, d_y + c), io.load(d, weight + c));
      const auto value = hn::NegMulAdd(normed, gn_mean, hn::Sub(g, g_mean));
      if constexpr (mode == Write::kAccumulate) {
        io.store(hn::MulAdd(value, scale, io.load(d, d_x + c)), d, d_x + c);
      } else {
        io.store(hn::Mul(value, scale), d, d_x + c);
      }
    });
  }
}

template <typename T>
void backward_input(NormShape shape, const T* d_y, const T* x, const T* weight, const float* mean,
                    const float* rstd, Write d_x_mode, T* d_x) {
  if (d_x_mode == Write::kAccumulate) {
    backward_rows<T, Write::kAccumulate>(shape, d_y, x, weight, mean, rstd, d_x);
  } else {
    backward_rows<T, Write::kAssign>(shape, d_y, x, weight, mean, rstd, d_x);
  }
}

// One vector of columns stays in registers while the rows pass by.
template <typename T, class Io>
HWY_INLINE void add_parameters(Io io, NormShape shape, const T* d_y, const T* x, const float* mean,
                               const float* rstd, float* d_weight, float* d_bias) {
  const Float d;
  auto weight_sum = io.load(d, d_weight);
  auto bias_sum = io.load(d, d_bias);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const std::int64_t offset = r * shape.channels;
    const auto gradient = io.load(d, d_y + offset);
    const auto normed =
        hn::Mul(hn::Sub(io.load(d, x + offset), hn::Set(d, mean[r])), hn::Set(d, rstd[r]));
    weight_sum = hn::MulAdd(gradient, normed, weight_sum);
    bias_sum = hn::Add(bias_sum, gradient);
  }
  io.store(weight_sum, d, d_weight);
  io.store(bias_sum, d, d_bias);
}

template <typename T>
void backward_parameters(NormShape shape, const T* d_y, const T* x, const float* mean,
                         const float* rstd, float* d_weight, float* d_bias, std::int64_t begin,
                         std::int64_t end) {
  for_each_vector(Float(), end - begin, [&](auto io, std::int64_t i) HWY_ATTR {
    const std::int64_t c = begin + i;
    add_parameters(io, shape, d_y + c, x + c, mean, rstd, d_weight + c, d_bias + c);
  });
}

}  // namespace

constexpr LayerNormFunctions<float> kLayerNormF32 = {
    forward<float>, residual_forward<float>, backward_input<float>, backward_parameters<float>};
constexpr LayerNormFunctions<bf16> kLayerNormBf16 = {
    forward<bf16>, residual_forward<bf16>, backward_input<bf16>, backward_parameters<bf16>};

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
