#include "kernels/cross_entropy.h"

#include <cmath>

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"

namespace sinew::kernels {

template <typename T>
void cross_entropy_max(const CrossEntropyShape& shape, const T* logits, Wide<T>* row_max,
                       Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->cross_entropy_max(shape, logits, row_max);
  }
  const auto& f = best<CrossEntropyFunctions<T>>();
  parallel_for(threads, shape.rows, grain_rows(shape.columns),
               [&](std::int64_t begin, std::int64_t end) {
                 f.max(rows_of(shape, begin, end), logits + begin * shape.columns, row_max + begin);
               });
}

template <typename T>
void cross_entropy_sums(const CrossEntropyShape& shape, const T* logits,
                        const std::int32_t* targets, const Wide<T>* row_max, Wide<T>* sum_exp,
                        Wide<T>* target_logit, Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->cross_entropy_sums(shape, logits, targets, row_max, sum_exp,
                                                     target_logit);
  }
  const auto& f = best<CrossEntropyFunctions<T>>();
  parallel_for(threads, shape.rows, grain_rows(shape.columns),
               [&](std::int64_t begin, std::int64_t end) {
                 f.sums(rows_of(shape, begin, end), logits + begin * shape.columns, targets + begin,
                        row_max + begin, sum_exp + begin, target_logit + begin);
               });
}

template <typename T>
void cross_entropy_loss(std::int64_t rows, const std::int32_t* targets, const T* sum_exp,
                        const T* target_logit, T* loss, Threads threads) {
  if constexpr (std::is_same_v<T, float>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->cross_entropy_loss(rows, targets, sum_exp, target_logit, loss);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    loss[r] = targets[r] >= 0 ? std::log(sum_exp[r]) - target_logit[r] : T{0};
  }
}

template <typename T>
void cross_entropy_backward(const CrossEntropyShape& shape, T* logits, const std::int32_t* targets,
                            const Wide<T>* row_max, const Wide<T>* sum_exp, Wide<T> scale,
                            Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->cross_entropy_backward(shape, logits, targets, row_max, sum_exp,
                                                         scale);
  }
  const auto& f = best<CrossEntropyFunctions<T>>();
  parallel_for(threads, shape.rows, grain_rows(shape.columns),
               [&](std::int64_t begin, std::int64_t end) {
                 f.backward(rows_of(shape, begin, end), logits + begin * shape.columns,
                            targets + begin, row_max + begin, sum_exp + begin, scale);
               });
}

template void cross_entropy_loss<float>(std::int64_t, const std::int32_t*, const float*,
                                        const float*, float*, Threads);
template void cross_entropy_loss<double>(std::int64_t, const std::int32_t*, const double*,
                                         const double*, double*, Threads);

#define SINEW_INSTANTIATE(T)                                                                   \
  template void cross_entropy_max<T>(const CrossEntropyShape&, const T*, Wide<T>*, Threads);   \
  template void cross_entropy_sums<T>(const CrossEntropyShape&, const T*, const std::int32_t*, \
                                      const Wide<T>*, Wide<T>*, Wide<T>*, Threads);            \
  template void cross_entropy_backward<T>(const CrossEntropyShape&, T*, const std::int32_t*,   \
                                          const Wide<T>*, const Wide<T>*, Wide<T>, Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
