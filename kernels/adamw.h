// AdamW (Loshchilov and Hutter 2019), one pass, in this order per element, t = step counted from 1:
//   m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w = w - lr (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + decay w)
// with g = gradient * gradient_scale (the clipping coefficient). Element-wise, so a shard equals the whole.
#pragma once

#include <cstdint>

#include "kernels/threads.h"

namespace sinew::kernels {

struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;
  std::int64_t step = 1;
};

template <typename T>
void adamw(const AdamW& options, std::int64_t count, const T* gradient, T* weight, T* first_moment, T* second_moment,
           Threads threads = {});

// Sum of squares in f64, in a fixed order that depends on count only; the gradient norm's building block.
template <typename T>
[[nodiscard]] double sum_of_squares(const T* data, std::int64_t count);

// target[i] += source[i]; the residual connection and gradient accumulation.
template <typename T>
void add(T* target, const T* source, std::int64_t count, Threads threads = {});
// y[r, c] += bias[c]
template <typename T>
void add_bias(T* y, const T* bias, std::int64_t rows, std::int64_t channels, Threads threads = {});
// d_bias[c] += sum over r of d_y[r, c], rows in increasing order
template <typename T>
void bias_backward(const T* d_y, T* d_bias, std::int64_t rows, std::int64_t channels, Threads threads = {});

}  // namespace sinew::kernels
