#include "kernels/adamw.h"

#include <cmath>

#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {

template <typename T>
AdamWFactors<T>::AdamWFactors(const AdamW& options) {
  const auto t = static_cast<double>(options.step);
  beta1 = static_cast<T>(options.beta1);
  beta2 = static_cast<T>(options.beta2);
  rest1 = static_cast<T>(1.0 - options.beta1);
  rest2 = static_cast<T>(1.0 - options.beta2);
  correction1 = static_cast<T>(1.0 / (1.0 - std::pow(options.beta1, t)));
  correction2 = static_cast<T>(1.0 / (1.0 - std::pow(options.beta2, t)));
  epsilon = static_cast<T>(options.epsilon);
  lr = static_cast<T>(options.lr);
  decay = static_cast<T>(options.weight_decay);
  gradient_scale = static_cast<T>(options.gradient_scale);
}
template struct AdamWFactors<float>;
template struct AdamWFactors<double>;

template <typename T>
void adamw(const AdamW& options, std::int64_t count, const T* gradient, T* weight, T* first_moment,
           T* second_moment, Threads threads) {
  CHECK(threads.accelerator == nullptr);
  CHECK_GE(options.step, 1);
  const auto& f = best<AdamWFunctions<T>>();
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    f.step(options, end - begin, gradient + begin, weight + begin, first_moment + begin,
           second_moment + begin);
  });
}

template void adamw<float>(const AdamW&, std::int64_t, const float*, float*, float*, float*,
                           Threads);
template void adamw<double>(const AdamW&, std::int64_t, const double*, double*, double*, double*,
                            Threads);

}  // namespace sinew::kernels
