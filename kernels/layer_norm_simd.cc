// The vector layer norm; the passes over rows are in norm_simd_inl.h.
#include "kernels/layer_norm.h"

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/norm_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
void forward(NormShape shape, const T* x, const T* weight, const T* bias, float epsilon, T* y,
             float* mean, float* rstd) {
  norm_forward<Norm::kLayer>(
      shape.rows, Forward<T>{nullptr, x, weight, bias, epsilon, y, mean, rstd, shape.channels});
}

template <typename T>
void residual_forward(NormShape shape, T* residual, const T* x, const T* weight, const T* bias,
                      float epsilon, T* y, float* mean, float* rstd) {
  norm_forward<Norm::kLayer>(
      shape.rows, Forward<T>{residual, x, weight, bias, epsilon, y, mean, rstd, shape.channels});
}

template <typename T>
void backward(NormShape shape, const T* d_y, const T* x, const T* weight, const float* mean,
              const float* rstd, Write d_x_mode, T* d_x, float* d_weight, float* d_bias) {
  norm_backward<Norm::kLayer, Half::kBoth>(shape.rows,
                                           Backward<T>{d_y, x, weight, mean, rstd, d_x, d_weight,
                                                       d_bias, shape.channels, shape.channels},
                                           d_x_mode);
}

template <typename T>
void backward_input(NormShape shape, const T* d_y, const T* x, const T* weight, const float* mean,
                    const float* rstd, Write d_x_mode, T* d_x) {
  norm_backward<Norm::kLayer, Half::kInput>(shape.rows,
                                            Backward<T>{d_y, x, weight, mean, rstd, d_x, nullptr,
                                                        nullptr, shape.channels, shape.channels},
                                            d_x_mode);
}

template <typename T>
void backward_parameters(NormShape shape, const T* d_y, const T* x, const float* mean,
                         const float* rstd, float* d_weight, float* d_bias, std::int64_t begin,
                         std::int64_t end) {
  norm_backward<Norm::kLayer, Half::kParameters>(
      shape.rows,
      Backward<T>{d_y + begin, x + begin, nullptr, mean, rstd, nullptr, d_weight + begin,
                  d_bias + begin, shape.channels, end - begin},
      Write::kAssign);
}

template <typename T>
constexpr LayerNormFunctions<T> kTable = {forward<T>, residual_forward<T>, backward<T>,
                                          backward_input<T>, backward_parameters<T>};

}  // namespace

#if !SINEW_SIMD_IS_BF16
constexpr LayerNormFunctions<float> kLayerNormF32 = kTable<float>;
#endif
constexpr LayerNormFunctions<bf16> kLayerNormBf16 = kTable<bf16>;

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
  return SINEW_SIMD_BF16_VERSION(isa, kLayerNormBf16);
}

}  // namespace sinew::kernels
#endif
