#include "kernels/layer_norm.h"

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {

template <typename T>
void layer_norm_forward(NormShape shape, const T* x, const T* weight, const T* bias,
                        Wide<T> epsilon, T* y, Wide<T>* mean, Wide<T>* rstd, Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->layer_norm_forward(shape, x, weight, bias, epsilon, y, mean,
                                                     rstd);
  }
  const auto& f = best<LayerNormFunctions<T>>();
  const std::int64_t channels = shape.channels;
  parallel_for(threads, shape.rows, grain_rows(channels),
               [&](std::int64_t begin, std::int64_t end) {
                 f.forward({end - begin, channels}, x + begin * channels, weight, bias, epsilon,
                           y + begin * channels, mean + begin, rstd + begin);
               });
}

template <typename T>
void residual_layer_norm_forward(NormShape shape, T* residual, const T* x, const T* weight,
                                 const T* bias, Wide<T> epsilon, T* y, Wide<T>* mean, Wide<T>* rstd,
                                 Threads threads) {
  CHECK(threads.accelerator == nullptr);
  const auto& f = best<LayerNormFunctions<T>>();
  const std::int64_t channels = shape.channels;
  parallel_for(threads, shape.rows, grain_rows(channels),
               [&](std::int64_t begin, std::int64_t end) {
                 f.residual_forward({end - begin, channels}, residual + begin * channels,
                                    x + begin * channels, weight, bias, epsilon,
                                    y + begin * channels, mean + begin, rstd + begin);
               });
}

template <typename T>
void layer_norm_backward(NormShape shape, const T* d_y, const T* x, const T* weight,
                         const Wide<T>* mean, const Wide<T>* rstd, Write d_x_mode, T* d_x,
                         Wide<T>* d_weight, Wide<T>* d_bias, Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->layer_norm_backward(shape, d_y, x, weight, mean, rstd, d_x_mode,
                                                      d_x, d_weight, d_bias);
  }
  const auto& f = best<LayerNormFunctions<T>>();
  const std::int64_t channels = shape.channels;
  if (threads.count <= 1) {
    f.backward(shape, d_y, x, weight, mean, rstd, d_x_mode, d_x, d_weight, d_bias);
    return;
  }
  // The parameters come first, since d_x may be d_y.
  parallel_for(threads, channels, grain_channels(shape.rows),
               [&](std::int64_t begin, std::int64_t end) {
                 f.backward_parameters(shape, d_y, x, mean, rstd, d_weight, d_bias, begin, end);
               });
  parallel_for(threads, shape.rows, grain_rows(channels),
               [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t offset = begin * channels;
                 f.backward_input({end - begin, channels}, d_y + offset, x + offset, weight,
                                  mean + begin, rstd + begin, d_x_mode, d_x + offset);
               });
}

#define SINEW_INSTANTIATE(T)                                                                    \
  template void layer_norm_forward<T>(NormShape, const T*, const T*, const T*, Wide<T>, T*,     \
                                      Wide<T>*, Wide<T>*, Threads);                             \
  template void residual_layer_norm_forward<T>(NormShape, T*, const T*, const T*, const T*,     \
                                               Wide<T>, T*, Wide<T>*, Wide<T>*, Threads);       \
  template void layer_norm_backward<T>(NormShape, const T*, const T*, const T*, const Wide<T>*, \
                                       const Wide<T>*, Write, T*, Wide<T>*, Wide<T>*, Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
