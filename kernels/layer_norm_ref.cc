// The plain layer norm. Backward, per row, with n = (x - mean) rstd and g = d_y weight:
//   d_x = rstd (g - mean_c(g) - n mean_c(g n));  d_weight += d_y n;  d_bias += d_y
// Row sums accumulate in f64.
#include <cmath>

#include "kernels/layer_norm.h"

namespace sinew::kernels {
namespace {

template <typename T>
void forward(NormShape shape, const T* x, const T* weight, const T* bias, Wide<T> epsilon, T* y,
             Wide<T>* mean, Wide<T>* rstd) {
  const std::int64_t channels = shape.channels;
  for (std::int64_t r = 0; r < shape.rows; ++r, x += channels, y += channels) {
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) sum += widen(x[c]);
    const double center = sum / static_cast<double>(channels);
    double squares = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      squares += (widen(x[c]) - center) * (widen(x[c]) - center);
    }
    const double variance = squares / static_cast<double>(channels);
    mean[r] = static_cast<Wide<T>>(center);
    rstd[r] = static_cast<Wide<T>>(1.0 / std::sqrt(variance + static_cast<double>(epsilon)));
    for (std::int64_t c = 0; c < channels; ++c) {
      y[c] = narrow<T>((widen(x[c]) - mean[r]) * rstd[r] * widen(weight[c]) + widen(bias[c]));
    }
  }
}

template <typename T>
void residual_forward(NormShape shape, T* residual, const T* x, const T* weight, const T* bias,
                      Wide<T> epsilon, T* y, Wide<T>* mean, Wide<T>* rstd) {
  for (std::int64_t i = 0; i < shape.rows * shape.channels; ++i) {
    residual[i] = narrow<T>(widen(residual[i]) + widen(x[i]));
  }
  forward(shape, residual, weight, bias, epsilon, y, mean, rstd);
}

template <typename T>
void backward_input(NormShape shape, const T* d_y, const T* x, const T* weight, const Wide<T>* mean,
                    const Wide<T>* rstd, Write d_x_mode, T* d_x) {
  using W = Wide<T>;
  const std::int64_t channels = shape.channels;
  for (std::int64_t r = 0; r < shape.rows; ++r, d_y += channels, x += channels, d_x += channels) {
    double sum = 0;
    double sum_normed = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      const double g = static_cast<double>(widen(d_y[c])) * static_cast<double>(widen(weight[c]));
      sum += g;
      sum_normed += g * static_cast<double>((widen(x[c]) - mean[r]) * rstd[r]);
    }
    const auto g_mean = static_cast<W>(sum / static_cast<double>(channels));
    const auto gn_mean = static_cast<W>(sum_normed / static_cast<double>(channels));
    for (std::int64_t c = 0; c < channels; ++c) {
      const W normed = (widen(x[c]) - mean[r]) * rstd[r];
      const W value = (widen(d_y[c]) * widen(weight[c]) - g_mean - normed * gn_mean) * rstd[r];
      d_x[c] = narrow<T>(d_x_mode == Write::kAccumulate ? widen(d_x[c]) + value : value);
    }
  }
}

template <typename T>
void backward_parameters(NormShape shape, const T* d_y, const T* x, const Wide<T>* mean,
                         const Wide<T>* rstd, Wide<T>* d_weight, Wide<T>* d_bias,
                         std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = 0; r < shape.rows; ++r, d_y += shape.channels, x += shape.channels) {
    for (std::int64_t c = begin; c < end; ++c) {
      d_weight[c] += widen(d_y[c]) * ((widen(x[c]) - mean[r]) * rstd[r]);
      d_bias[c] += widen(d_y[c]);
    }
  }
}

// Row by row, the parameters first, since d_x may be d_y.
template <typename T>
void backward(NormShape shape, const T* d_y, const T* x, const T* weight, const Wide<T>* mean,
              const Wide<T>* rstd, Write d_x_mode, T* d_x, Wide<T>* d_weight, Wide<T>* d_bias) {
  const NormShape row{1, shape.channels};
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const std::int64_t offset = r * shape.channels;
    backward_parameters(row, d_y + offset, x + offset, mean + r, rstd + r, d_weight, d_bias, 0,
                        shape.channels);
    backward_input(row, d_y + offset, x + offset, weight, mean + r, rstd + r, d_x_mode,
                   d_x + offset);
  }
}

}  // namespace

template <typename T>
const LayerNormFunctions<T>& layer_norm_plain() {
  static constexpr LayerNormFunctions<T> table = {forward<T>, residual_forward<T>, backward<T>,
                                                  backward_input<T>, backward_parameters<T>};
  return table;
}
template const LayerNormFunctions<float>& layer_norm_plain();
template const LayerNormFunctions<double>& layer_norm_plain();
template const LayerNormFunctions<bf16>& layer_norm_plain();

}  // namespace sinew::kernels
