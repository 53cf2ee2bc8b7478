#include "kernels/swiglu.h"

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {

template <typename T>
void swiglu_forward(const GatedShape& shape, const T* gate, const T* up, T* y, Threads threads) {
  CHECK_GE(shape.gate_stride, shape.channels);
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->swiglu_forward(shape, gate, up, y);
  }
  const auto& f = best<SwigluFunctions<T>>();
  parallel_for(threads, shape.rows, grain_rows(shape.channels),
               [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t offset = begin * shape.gate_stride;
                 f.forward({end - begin, shape.channels, shape.gate_stride}, gate + offset,
                           up + offset, y + begin * shape.channels);
               });
}

template <typename T>
void swiglu_backward(const GatedShape& shape, const T* d_y, const T* gate, const T* up, T* d_gate,
                     T* d_up, Threads threads) {
  CHECK_GE(shape.gate_stride, shape.channels);
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->swiglu_backward(shape, d_y, gate, up, d_gate, d_up);
  }
  const auto& f = best<SwigluFunctions<T>>();
  parallel_for(
      threads, shape.rows, grain_rows(shape.channels), [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t offset = begin * shape.gate_stride;
        f.backward({end - begin, shape.channels, shape.gate_stride}, d_y + begin * shape.channels,
                   gate + offset, up + offset, d_gate + offset, d_up + offset);
      });
}

#define SINEW_INSTANTIATE(T)                                                                \
  template void swiglu_forward<T>(const GatedShape&, const T*, const T*, T*, Threads);      \
  template void swiglu_backward<T>(const GatedShape&, const T*, const T*, const T*, T*, T*, \
                                   Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
