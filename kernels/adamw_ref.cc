// The plain AdamW step.
#include <cmath>

#include "kernels/adamw.h"

namespace sinew::kernels {
namespace {

template <typename T>
void step(const AdamW& options, std::int64_t count, const T* gradient, T* weight, T* first_moment,
          T* second_moment) {
  const AdamWFactors<T> f(options);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * f.gradient_scale;
    const T m = f.beta1 * first_moment[i] + f.rest1 * g;
    const T v = f.beta2 * second_moment[i] + f.rest2 * (g * g);
    first_moment[i] = m;
    second_moment[i] = v;
    const T direction = m * f.correction1 / (std::sqrt(v * f.correction2) + f.epsilon);
    weight[i] -= f.lr * (direction + f.decay * weight[i]);
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
