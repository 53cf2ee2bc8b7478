#include "kernels/rms_norm.h"

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {

template <typename T>
void rms_norm_forward(NormShape shape, const T* x, const T* weight, Wide<T> epsilon, T* y,
                      Wide<T>* rstd, Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->rms_norm_forward(shape, x, weight, epsilon, y, rstd);
  }
  const auto& f = best<RmsNormFunctions<T>>();
  const std::int64_t channels = shape.channels;
  parallel_for(threads, shape.rows, grain_rows(channels),
               [&](std::int64_t begin, std::int64_t end) {
                 f.forward({end - begin, channels}, x + begin * channels, weight, epsilon,
                           y + begin * channels, rstd + begin);
               });
}

template <typename T>
void residual_rms_norm_forward(NormShape shape, T* residual, const T* x, const T* weight,
                               Wide<T> epsilon, T* y, Wide<T>* rstd, Threads threads) {
  CHECK(threads.accelerator == nullptr);
  const auto& f = best<RmsNormFunctions<T>>();
  const std::int64_t channels = shape.channels;
  parallel_for(threads, shape.rows, grain_rows(channels),
               [&](std::int64_t begin, std::int64_t end) {
                 f.residual_forward({end - begin, channels}, residual + begin * channels,
                                    x + begin * channels, weight, epsilon, y + begin * channels,
                                    rstd + begin);
               });
}

template <typename T>
void rms_norm_backward(NormShape shape, const T* d_y, const T* x, const T* weight,
                       const Wide<T>* rstd, Write d_x_mode, T* d_x, Wide<T>* d_weight,
                       Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->rms_norm_backward(shape, d_y, x, weight, rstd, d_x_mode, d_x,
                                                    d_weight);
  }
  const auto& f = best<RmsNormFunctions<T>>();
  const std::int64_t channels = shape.channels;
  if (threads.count <= 1) {
    f.backward(shape, d_y, x, weight, rstd, d_x_mode, d_x, d_weight);
    return;
  }
  // The parameters come first, since d_x may be d_y.
  parallel_for(threads, channels, grain_channels(shape.rows),
               [&](std::int64_t begin, std::int64_t end) {
                 f.backward_parameters(shape, d_y, x, rstd, d_weight, begin, end);
               });
  parallel_for(threads, shape.rows, grain_rows(channels),
               [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t offset = begin * channels;
                 f.backward_input({end - begin, channels}, d_y + offset, x + offset, weight,
                                  rstd + begin, d_x_mode, d_x + offset);
               });
}

#define SINEW_INSTANTIATE(T)                                                                  \
  template void rms_norm_forward<T>(NormShape, const T*, const T*, Wide<T>, T*, Wide<T>*,     \
                                    Threads);                                                 \
  template void residual_rms_norm_forward<T>(NormShape, T*, const T*, const T*, Wide<T>, T*,  \
                                             Wide<T>*, Threads);                              \
  template void rms_norm_backward<T>(NormShape, const T*, const T*, const T*, const Wide<T>*, \
                                     Write, T*, Wide<T>*, Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
