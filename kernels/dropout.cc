#include "kernels/dropout.h"

#include <algorithm>
#include <cmath>

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {
namespace {

template <typename T>
void run(typename DropoutFunctions<T>::Function function, const RandomStream& random,
         double probability, const DropoutShape& shape, const T* x, T* y, Threads threads) {
  CHECK(threads.accelerator == nullptr);
  CHECK_LE(shape.first_column + shape.columns, shape.global_columns);
  const std::uint32_t threshold = drop_threshold(probability);
  const auto factor = static_cast<Wide<T>>(keep_factor(threshold));
  parallel_for(threads, shape.rows, grain_rows(shape.columns),
               [&](std::int64_t begin, std::int64_t end) {
                 DropoutShape part = shape;
                 part.rows = end - begin;
                 part.first_row += begin;
                 const std::int64_t offset = begin * shape.columns;
                 function(random, threshold, factor, part, x + offset, y + offset);
               });
}

}  // namespace

std::uint32_t drop_threshold(double probability) {
  CHECK_GE(probability, 0.0);
  CHECK_LT(probability, 1.0);
  return std::min(0xffffU, static_cast<std::uint32_t>(std::round(probability * 0x1p16)));
}

double keep_factor(std::uint32_t threshold) {
  return 0x1p16 / (0x1p16 - static_cast<double>(threshold));
}

template <typename T>
void dropout(const RandomStream& random, double probability, const DropoutShape& shape, const T* x,
             T* y, Threads threads) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->dropout(random, probability, shape, x, y);
  }
  run(best<DropoutFunctions<T>>().assign, random, probability, shape, x, y, threads);
}

template <typename T>
void dropout_add(const RandomStream& random, double probability, const DropoutShape& shape,
                 const T* x, T* target, Threads threads) {
  run(best<DropoutFunctions<T>>().add, random, probability, shape, x, target, threads);
}

#define SINEW_INSTANTIATE(T)                                                                   \
  template void dropout<T>(const RandomStream&, double, const DropoutShape&, const T*, T*,     \
                           Threads);                                                           \
  template void dropout_add<T>(const RandomStream&, double, const DropoutShape&, const T*, T*, \
                               Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
