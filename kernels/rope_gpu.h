// Rotary position embedding, rotate-half layout: the pair (i, i + D/2) of each head turns by the
// angle position * theta^(-2i/D). Su et al., 2021. Device memory, in place.
//
// x: element (b, t, h, d) lies at x + b*batch_stride + t*time_stride + h*D + d. Angles come from a
// table, since f32 angles of far positions would be off; the table is indexed by *global* position.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device/runtime.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

struct RopeStrides {
  std::int64_t batch = 0;
  std::int64_t time = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;  // D, even
  std::int64_t batch_stride = 0;
  std::int64_t time_stride = 0;
};

// [positions, D/2] pairs (cos, sin) of the angles of positions first, first + 1, ..., in f64
// rounded once.
[[nodiscard]] std::vector<float> rope_table(std::int64_t first, std::int64_t positions,
                                            std::int64_t head_dim, double theta);

enum class RopeTurn : std::uint8_t { kForward, kBackward };  // backward turns a gradient back

// table: of this shape's positions, on the device. T is float or bf16.
template <typename T>
void rope(const RopeStrides& shape, RopeTurn turn, const float* table, T* x,
          device::Stream& stream);

}  // namespace sinew::kernels
