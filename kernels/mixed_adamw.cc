#include "kernels/mixed_adamw.h"

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {

void adamw_with_master(const AdamW& options, std::int64_t count, const float* gradient,
                       float* master, bf16* weight, float* first_moment, float* second_moment,
                       Threads threads) {
  CHECK_GE(options.step, 1);
  if (threads.accelerator != nullptr) {
    return threads.accelerator->adamw_with_master(options, count, gradient, master, weight,
                                                  first_moment, second_moment, nullptr);
  }
  const auto& f = best<MixedAdamWFunctions>();
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    f.with_master(options, end - begin, gradient + begin, master + begin, weight + begin,
                  first_moment + begin, second_moment + begin);
  });
}

void adamw_stochastic(const AdamW& options, const RandomStream& random, std::int64_t first_index,
                      std::int64_t count, const float* gradient, bf16* weight, float* first_moment,
                      float* second_moment, Threads threads) {
  CHECK_GE(options.step, 1);
  CHECK_GE(first_index, 0);
  if (threads.accelerator != nullptr) {
    return threads.accelerator->adamw_stochastic(options, random, first_index, count, gradient,
                                                 weight, first_moment, second_moment, nullptr);
  }
  const auto& f = best<MixedAdamWFunctions>();
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    f.stochastic(options, random, first_index + begin, end - begin, gradient + begin,
                 weight + begin, first_moment + begin, second_moment + begin);
  });
}

}  // namespace sinew::kernels
