#include "kernels/gelu.h"

#include "kernels/grain.h"
#include "kernels/registry.h"

namespace sinew::kernels {

template <typename T>
void gelu_forward(const T* x, T* y, std::int64_t count, Threads threads) {
  const auto& f = best<GeluFunctions<T>>();
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    f.forward(x + begin, y + begin, end - begin);
  });
}

template <typename T>
void gelu_backward(const T* d_y, const T* x, T* d_x, std::int64_t count, Threads threads) {
  const auto& f = best<GeluFunctions<T>>();
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    f.backward(d_y + begin, x + begin, d_x + begin, end - begin);
  });
}

template void gelu_forward<float>(const float*, float*, std::int64_t, Threads);
template void gelu_forward<double>(const double*, double*, std::int64_t, Threads);
template void gelu_backward<float>(const float*, const float*, float*, std::int64_t, Threads);
template void gelu_backward<double>(const double*, const double*, double*, std::int64_t, Threads);

}  // namespace sinew::kernels
