#include "kernels/adamw.h"

#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {

template <typename T>
void adamw(const AdamW& options, std::int64_t count, const T* gradient, T* weight, T* first_moment,
           T* second_moment, Threads threads) {
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
