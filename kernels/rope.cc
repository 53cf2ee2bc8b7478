#include "kernels/rope.h"

#include <cmath>

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {
namespace {

template <typename T>
void turn_all(const RopeShape& shape, HeadView<T> x, const Wide<T>* cosine, const Wide<T>* sine,
              Turn direction, Threads threads) {
  CHECK_EQ(shape.head_dim % 2, 0);
  if constexpr (std::is_same_v<T, bf16>) {
    if (threads.accelerator != nullptr)
      return threads.accelerator->rope(shape, x, cosine, sine, direction);
  }
  const auto& f = best<RopeFunctions<T>>();
  parallel_for(threads, shape.batch * shape.time, grain_rows(shape.heads * shape.head_dim),
               [&](std::int64_t begin, std::int64_t end) {
                 f.turn(shape, x, cosine, sine, direction, begin, end);
               });
}

}  // namespace

template <typename W>
void rope_table(std::span<const std::int32_t> positions, std::int64_t head_dim, double theta,
                W* cosine, W* sine) {
  CHECK_EQ(head_dim % 2, 0);
  for (const std::int32_t position : positions) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
      const double angle = position * std::pow(theta, exponent);
      *cosine++ = static_cast<W>(std::cos(angle));
      *sine++ = static_cast<W>(std::sin(angle));
    }
  }
}

template <typename T>
void rope_forward(const RopeShape& shape, HeadView<T> x, const Wide<T>* cosine, const Wide<T>* sine,
                  Threads threads) {
  turn_all(shape, x, cosine, sine, Turn::kForward, threads);
}

template <typename T>
void rope_backward(const RopeShape& shape, HeadView<T> d_x, const Wide<T>* cosine,
                   const Wide<T>* sine, Threads threads) {
  turn_all(shape, d_x, cosine, sine, Turn::kBack, threads);
}

template void rope_table<float>(std::span<const std::int32_t>, std::int64_t, double, float*,
                                float*);
template void rope_table<double>(std::span<const std::int32_t>, std::int64_t, double, double*,
                                 double*);
#define SINEW_INSTANTIATE(T)                                                                    \
  template void rope_forward<T>(const RopeShape&, HeadView<T>, const Wide<T>*, const Wide<T>*,  \
                                Threads);                                                       \
  template void rope_backward<T>(const RopeShape&, HeadView<T>, const Wide<T>*, const Wide<T>*, \
                                 Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::kernels
