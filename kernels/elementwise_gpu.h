// The small kernels of elementwise.h on device memory, conversions, and dropout. T is float or
// bf16; arithmetic is f32 and rounds once.
#pragma once

#include <cstdint>

#include "kernels/device/runtime.h"
#include "kernels/dropout.h"
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

// target[i] = value.
void fill(float* target, float value, std::int64_t count, device::Stream& stream);

// The dropout of dropout.h: the same elements dropped, the same bits. y may be x. base: null, or
// what is added to random.stream, read when the kernel runs.
template <typename T>
void dropout(const RandomStream& random, double probability, const DropoutShape& shape, const T* x,
             T* y, device::Stream& stream, const std::uint64_t* base = nullptr);

}  // namespace sinew::kernels
