// The plain AdamW step.
#include <cmath>

#include "kernels/adamw.h"

namespace sinew::kernels {
namespace {

template <typename T>
void step(const AdamW& options, std::int64_t count, const T* gradient, T* weight, T* first_moment,
          T* second_moment) {
  // Everything that does not depend on the element is computed in f64 and rounded to T once.
  const auto t = static_cast<double>(options.step);
  const auto beta1 = static_cast<T>(options.beta1);
  const auto beta2 = static_cast<T>(options.beta2);
  const auto rest1 = static_cast<T>(1.0 - options.beta1);
  const auto rest2 = static_cast<T>(1.0 - options.beta2);
  const auto correction1 = static_cast<T>(1.0 / (1.0 - std::pow(options.beta1, t)));
  const auto correction2 = static_cast<T>(1.0 / (1.0 - std::pow(options.beta2, t)));
  const auto epsilon = static_cast<T>(options.epsilon);
  const auto lr = static_cast<T>(options.lr);
  const auto decay = static_cast<T>(options.weight_decay);
  const auto gradient_scale = static_cast<T>(options.gradient_scale);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * gradient_scale;
    const T m = beta1 * first_moment[i] + rest1 * g;
    const T v = beta2 * second_moment[i] + rest2 * (g * g);
    first_moment[i] = m;
    second_moment[i] = v;
    const T direction = m * correction1 / (std::sqrt(v * correction2) + epsilon);
    weight[i] -= lr * (direction + decay * weight[i]);
  }
}

}  // namespace

template <typename T>
const AdamWFunctions<T>& adamw_plain() {
  static constexpr AdamWFunctions<T> table = {step<T>};
  return table;
}
template const AdamWFunctions<float>& adamw_plain();
template const AdamWFunctions<double>& adamw_plain();

}  // namespace sinew::kernels
