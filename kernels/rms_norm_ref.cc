// The plain RMS norm. Row sums accumulate in f64.
#include <cmath>

#include "kernels/rms_norm.h"

namespace sinew::kernels {
namespace {

template <typename T>
void forward(NormShape shape, const T* x, const T* weight, Wide<T> epsilon, T* y, Wide<T>* rstd) {
  const std::int64_t channels = shape.channels;
  for (std::int64_t r = 0; r < shape.rows; ++r, x += channels, y += channels) {
    double squares = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      squares += static_cast<double>(widen(x[c])) * static_cast<double>(widen(x[c]));
    }
    const double mean = squares / static_cast<double>(channels);
    rstd[r] = static_cast<Wide<T>>(1.0 / std::sqrt(mean + static_cast<double>(epsilon)));
    for (std::int64_t c = 0; c < channels; ++c) {
      y[c] = narrow<T>(widen(x[c]) * rstd[r] * widen(weight[c]));
    }
  }
}

template <typename T>
void residual_forward(NormShape shape, T* residual, const T* x, const T* weight, Wide<T> epsilon,
                      T* y, Wide<T>* rstd) {
  for (std::int64_t i = 0; i < shape.rows * shape.channels; ++i) {
    residual[i] = narrow<T>(widen(residual[i]) + widen(x[i]));
  }
  forward(shape, residual, weight, epsilon, y, rstd);
}

template <typename T>
void backward_input(NormShape shape, const T* d_y, const T* x, const T* weight, const Wide<T>* rstd,
                    Write d_x_mode, T* d_x) {
  using W = Wide<T>;
  const std::int64_t channels = shape.channels;
  for (std::int64_t r = 0; r < shape.rows; ++r, d_y += channels, x += channels, d_x += channels) {
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      const double g = static_cast<double>(widen(d_y[c])) * static_cast<double>(widen(weight[c]));
      sum += g * static_cast<double>(widen(x[c]) * rstd[r]);
    }
    const auto gn_mean = static_cast<W>(sum / static_cast<double>(channels));
    for (std::int64_t c = 0; c < channels; ++c) {
      const W normed = widen(x[c]) * rstd[r];
      const W value = (widen(d_y[c]) * widen(weight[c]) - normed * gn_mean) * rstd[r];
      d_x[c] = narrow<T>(d_x_mode == Write::kAccumulate ? widen(d_x[c]) + value : value);
    }
  }
}

template <typename T>
void backward_parameters(NormShape shape, const T* d_y, const T* x, const Wide<T>* rstd,
                         Wide<T>* d_weight, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = 0; r < shape.rows; ++r, d_y += shape.channels, x += shape.channels) {
    for (std::int64_t c = begin; c < end; ++c) {
      d_weight[c] += widen(d_y[c]) * (widen(x[c]) * rstd[r]);
    }
  }
}

// Row by row, the parameters first, since d_x may be d_y.
template <typename T>
void backward(NormShape shape, const T* d_y, const T* x, const T* weight, const Wide<T>* rstd,
              Write d_x_mode, T* d_x, Wide<T>* d_weight) {
  const NormShape row{1, shape.channels};
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    const std::int64_t offset = r * shape.channels;
    backward_parameters(row, d_y + offset, x + offset, rstd + r, d_weight, 0, shape.channels);
    backward_input(row, d_y + offset, x + offset, weight, rstd + r, d_x_mode, d_x + offset);
  }
}

}  // namespace

template <typename T>
const RmsNormFunctions<T>& rms_norm_plain() {
  static constexpr RmsNormFunctions<T> table = {forward<T>, residual_forward<T>, backward<T>,
                                                backward_input<T>, backward_parameters<T>};
  return table;
}
template const RmsNormFunctions<float>& rms_norm_plain();
template const RmsNormFunctions<double>& rms_norm_plain();
template const RmsNormFunctions<bf16>& rms_norm_plain();

}  // namespace sinew::kernels
