// The vector RMS norm; the passes over rows are in norm_simd_inl.h.
#include "kernels/rms_norm.h"

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/norm_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
void forward(NormShape shape, const T* x, const T* weight, float epsilon, T* y, float* rstd) {
  norm_forward<Norm::kRms>(shape.rows, Forward<T>{nullptr, x, weight, nullptr, epsilon, y, nullptr,
                                                  rstd, shape.channels});
}

template <typename T>
void residual_forward(NormShape shape, T* residual, const T* x, const T* weight, float epsilon,
                      T* y, float* rstd) {
  norm_forward<Norm::kRms>(shape.rows, Forward<T>{residual, x, weight, nullptr, epsilon, y, nullptr,
                                                  rstd, shape.channels});
}

template <typename T>
void backward(NormShape shape, const T* d_y, const T* x, const T* weight, const float* rstd,
              Write d_x_mode, T* d_x, float* d_weight) {
  norm_backward<Norm::kRms, Half::kBoth>(shape.rows,
                                         Backward<T>{d_y, x, weight, nullptr, rstd, d_x, d_weight,
                                                     nullptr, shape.channels, shape.channels},
                                         d_x_mode);
}

template <typename T>
void backward_input(NormShape shape, const T* d_y, const T* x, const T* weight, const float* rstd,
                    Write d_x_mode, T* d_x) {
  norm_backward<Norm::kRms, Half::kInput>(shape.rows,
                                          Backward<T>{d_y, x, weight, nullptr, rstd, d_x, nullptr,
                                                      nullptr, shape.channels, shape.channels},
                                          d_x_mode);
}

template <typename T>
void backward_parameters(NormShape shape, const T* d_y, const T* x, const float* rstd,
                         float* d_weight, std::int64_t begin, std::int64_t end) {
  norm_backward<Norm::kRms, Half::kParameters>(
      shape.rows,
      Backward<T>{d_y + begin, x + begin, nullptr, nullptr, rstd, nullptr, d_weight + begin,
                  nullptr, shape.channels, end - begin},
      Write::kAssign);
}

template <typename T>
constexpr RmsNormFunctions<T> kTable = {forward<T>, residual_forward<T>, backward<T>,
                                        backward_input<T>, backward_parameters<T>};

}  // namespace

#if !SINEW_SIMD_IS_BF16
constexpr RmsNormFunctions<float> kRmsNormF32 = kTable<float>;
#endif
constexpr RmsNormFunctions<bf16> kRmsNormBf16 = kTable<bf16>;

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

template <>
const RmsNormFunctions<float>* rms_norm_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kRmsNormF32);
}
template <>
const RmsNormFunctions<bf16>* rms_norm_simd(Isa isa) {
  return SINEW_SIMD_BF16_VERSION(isa, kRmsNormBf16);
}

}  // namespace sinew::kernels
#endif
