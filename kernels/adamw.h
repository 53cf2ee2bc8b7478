// AdamW (Loshchilov and Hutter 2019), one pass, in this order per element, t = step counted from 1:
//   m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w = w - lr (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) +
//   decay w)
// with g = gradient * gradient_scale (the clipping coefficient). Element-wise, so a shard equals
// the whole.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/elementwise.h"
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

// gradient, weight, first_moment, second_moment: [count], none overlapping another.
template <typename T>
void adamw(const AdamW& options, std::int64_t count, const T* gradient, T* weight, T* first_moment,
           T* second_moment, Threads threads = {});

// What does not depend on the element, computed in f64 and rounded to T once, the same for every
// version.
template <typename T>
struct AdamWFactors {
  explicit AdamWFactors(const AdamW& options);
  T beta1, beta2, rest1, rest2, correction1, correction2, epsilon, lr, decay, gradient_scale;
};

// What one version provides; see registry.h.
template <typename T>
struct AdamWFunctions {
  static constexpr std::string_view kOperation = "adamw";
  using Element = T;
  void (*step)(const AdamW& options, std::int64_t count, const T* gradient, T* weight,
               T* first_moment, T* second_moment);
};
template <typename T>
[[nodiscard]] const AdamWFunctions<T>& adamw_plain();
// Null where this build has no code for `isa`; float.
template <typename T>
[[nodiscard]] const AdamWFunctions<T>* adamw_simd(Isa isa);

}  // namespace sinew::kernels
