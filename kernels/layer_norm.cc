#include "kernels/layer_norm.h"

#include "kernels/grain.h"
#include "kernels/registry.h"

namespace sinew::kernels {

template <typename T>
void layer_norm_forward(NormShape shape, const T* x, const T* weight, const T* bias, T epsilon,
                        T* y, T* mean, T* rstd, Threads threads) {
  const auto& f = best<LayerNormFunctions<T>>();
  const std::int64_t channels = shape.channels;
  parallel_for(threads, shape.rows, grain_rows(channels),
               [&](std::int64_t begin, std::int64_t end) {
                 f.forward({end - begin, channels}, x + begin * channels, weight, bias, epsilon,
                           y + begin * channels, mean + begin, rstd + begin);
               });
}

template <typename T>
void layer_norm_backward(NormShape shape, const T* d_y, const T* x, const T* weight, const T* mean,
                         const T* rstd, Write d_x_mode, T* d_x, T* d_weight, T* d_bias,
                         Threads threads) {
  const auto& f = best<LayerNormFunctions<T>>();
  const std::int64_t channels = shape.channels;
  // The parameters first: d_x may be d_y.
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

#define SINEW_INSTANTIATE(T)                                                                  \
  template void layer_norm_forward<T>(NormShape, const T*, const T*, const T*, T, T*, T*, T*, \
                                      Threads);                                               \
  template void layer_norm_backward<T>(NormShape, const T*, const T*, const T*, const T*,     \
                                       const T*, Write, T*, T*, T*, Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
