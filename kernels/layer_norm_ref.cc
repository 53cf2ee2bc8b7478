// The plain layer norm. Backward, per row, with n = (x - mean) rstd and g = d_y weight:
//   d_x = rstd (g - mean_c(g) - n mean_c(g n));  d_weight += d_y n;  d_bias += d_y
// Row sums accumulate in f64.
#include <cmath>

#include "kernels/layer_norm.h"

namespace sinew::kernels {
namespace {

template <typename T>
void forward(NormShape shape, const T* x, const T* weight, const T* bias, T epsilon, T* y, T* mean,
             T* rstd) {
  const std::int64_t channels = shape.channels;
  for (std::int64_t r = 0; r < shape.rows; ++r, x += channels, y += channels) {
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) sum += x[c];
    const double center = sum / static_cast<double>(channels);
    double squares = 0;
    for (std::int64_t c = 0; c < channels; ++c) squares += (x[c] - center) * (x[c] - center);
    const double variance = squares / static_cast<double>(channels);
    mean[r] = static_cast<T>(center);
    rstd[r] = static_cast<T>(1.0 / std::sqrt(variance + static_cast<double>(epsilon)));
    for (std::int64_t c = 0; c < channels; ++c) {
      y[c] = (x[c] - mean[r]) * rstd[r] * weight[c] + bias[c];
    }
  }
}

template <typename T>
void backward_input(NormShape shape, const T* d_y, const T* x, const T* weight, const T* mean,
                    const T* rstd, Write d_x_mode, T* d_x) {
  const std::int64_t channels = shape.channels;
  for (std::int64_t r = 0; r < shape.rows; ++r, d_y += channels, x += channels, d_x += channels) {
    double sum = 0;
    double sum_normed = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      const double g = static_cast<double>(d_y[c]) * static_cast<double>(weight[c]);
      sum += g;
      sum_normed += g * static_cast<double>((x[c] - mean[r]) * rstd[r]);
    }
    const auto g_mean = static_cast<T>(sum / static_cast<double>(channels));
    const auto gn_mean = static_cast<T>(sum_normed / static_cast<double>(channels));
    for (std::int64_t c = 0; c < channels; ++c) {
      const T normed = (x[c] - mean[r]) * rstd[r];
      const T value = (d_y[c] * weight[c] - g_mean - normed * gn_mean) * rstd[r];
      d_x[c] = d_x_mode == Write::kAccumulate ? d_x[c] + value : value;
    }
  }
}

template <typename T>
void backward_parameters(NormShape shape, const T* d_y, const T* x, const T* mean, const T* rstd,
                         T* d_weight, T* d_bias, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = 0; r < shape.rows; ++r, d_y += shape.channels, x += shape.channels) {
    for (std::int64_t c = begin; c < end; ++c) {
      d_weight[c] += d_y[c] * ((x[c] - mean[r]) * rstd[r]);
      d_bias[c] += d_y[c];
    }
  }
}

}  // namespace

template <typename T>
const LayerNormFunctions<T>& layer_norm_plain() {
  static constexpr LayerNormFunctions<T> table = {forward<T>, backward_input<T>,
                                                  backward_parameters<T>};
  return table;
}
template const LayerNormFunctions<float>& layer_norm_plain();
template const LayerNormFunctions<double>& layer_norm_plain();

}  // namespace sinew::kernels
