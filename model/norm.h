// The norm of a model's family, forward and backward: GPT-2's layer norm or Llama's RMS norm.
#pragma once

#include "kernels/layer_norm.h"
#include "kernels/rms_norm.h"

namespace sinew::model {

// Views of one norm's parameters or of their gradients. bias and mean: null makes it RMS norm.
template <typename T>
struct NormWeights {
  T* weight = nullptr;
  T* bias = nullptr;
};
template <typename T>
struct NormStatistics {
  T* mean = nullptr;
  T* rstd = nullptr;
};

template <typename T>
void norm_forward(kernels::NormShape shape, const T* x, const NormWeights<const T>& w,
                  double epsilon, T* y, const NormStatistics<kernels::Wide<T>>& statistics,
                  kernels::Threads threads) {
  if (w.bias == nullptr) {
    kernels::rms_norm_forward<T>(shape, x, w.weight, static_cast<kernels::Wide<T>>(epsilon), y,
                                 statistics.rstd, threads);
  } else {
    kernels::layer_norm_forward<T>(shape, x, w.weight, w.bias,
                                   static_cast<kernels::Wide<T>>(epsilon), y, statistics.mean,
                                   statistics.rstd, threads);
  }
}

// The parameters' gradients are accumulated.
template <typename T>
void norm_backward(kernels::NormShape shape, const T* d_y, const T* x,
                   const NormWeights<const T>& w,
                   const NormStatistics<kernels::Wide<T>>& statistics, kernels::Write d_x_mode,
                   T* d_x, const NormWeights<kernels::Wide<T>>& d_w, kernels::Threads threads) {
  if (w.bias == nullptr) {
    kernels::rms_norm_backward<T>(shape, d_y, x, w.weight, statistics.rstd, d_x_mode, d_x,
                                  d_w.weight, threads);
  } else {
    kernels::layer_norm_backward<T>(shape, d_y, x, w.weight, statistics.mean, statistics.rstd,
                                    d_x_mode, d_x, d_w.weight, d_w.bias, threads);
  }
}

}  // namespace sinew::model
