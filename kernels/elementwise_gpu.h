// The small kernels of elementwise.h on device memory, conversions, and dropout. T is float or
// bf16; arithmetic is f32 and rounds once.
#pragma once

#include <cstdint>

#include "kernels/device/runtime.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// target[i] += source[i]. source may be target.
template <typename T>
void add(T* target, const T* source, std::int64_t count, device::Stream& stream);

// y[r, c] += bias[c]. y: [rows, channels] row-major; bias: [channels].
template <typename T>
void add_bias(T* y, const T* bias, std::int64_t rows, std::int64_t channels,
              device::Stream& stream);

// d_bias[c] += sum over r of d_y[r, c], in an order that depends on the shape only. workspace:
// column_sums_workspace(rows, channels) floats (device/column_sums.h).
template <typename T>
void bias_backward(const T* d_y, float* d_bias, std::int64_t rows, std::int64_t channels,
                   float* workspace, device::Stream& stream);

// *result = sum of squares in f64, in an order that depends on count only. workspace:
// sum_of_squares_workspace(count) doubles.
template <typename T>
void sum_of_squares(const T* data, std::int64_t count, double* result, double* workspace,
                    device::Stream& stream);
[[nodiscard]] std::int64_t sum_of_squares_workspace(std::int64_t count);

// target[i] = source[i], rounded to nearest even where To is narrower. No overlap.
template <typename From, typename To>
void convert(const From* source, To* target, std::int64_t count, device::Stream& stream);

// A matrix [rows, channels] that is part of a global one with channels_total channels, beginning at
// (first_row, first_channel): masks depend on the global place of an element and not on who holds
// it.
struct DropoutWindow {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  std::int64_t first_row = 0;
  std::int64_t first_channel = 0;
  std::int64_t channels_total = 0;
};
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint32_t purpose = 0;  // which layer and which of its dropouts
  std::uint64_t step = 0;
  float probability = 0;  // of being dropped, in [0, 1)
};

// y = x / (1 - p) where the element stays, else 0; the gradient passes through the same function.
// The element of global index g takes word g % 4 of Philox counter (g / 4, step); its upper 24
// bits, as a number in [0, 1), are below p when it is dropped. y may be x.
template <typename T>
void dropout(const DropoutWindow& shape, const DropoutKey& key, const T* x, T* y,
             device::Stream& stream);

}  // namespace sinew::kernels
