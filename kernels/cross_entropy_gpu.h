// The vocab-parallel cross entropy of cross_entropy.h on device memory, in the same four parts. T,
// the type of the logits, is float or bf16; the [rows] arrays are f32.
#pragma once

#include "kernels/cross_entropy.h"
#include "kernels/device/runtime.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

template <typename T>
void cross_entropy_max(const CrossEntropyShape& shape, const T* logits, float* row_max,
                       device::Stream& stream);
template <typename T>
void cross_entropy_sums(const CrossEntropyShape& shape, const T* logits,
                        const std::int32_t* targets, const float* row_max, float* sum_exp,
                        float* target_logit, device::Stream& stream);
void cross_entropy_loss(std::int64_t rows, const std::int32_t* targets, const float* sum_exp,
                        const float* target_logit, float* loss, device::Stream& stream);
// *total = sum over rows of loss, in f64, in an order that depends on rows only.
void cross_entropy_total(std::int64_t rows, const float* loss, double* total,
                         device::Stream& stream);
// told: null, or where the kernel finds the scale instead.
template <typename T>
void cross_entropy_backward(const CrossEntropyShape& shape, T* logits, const std::int32_t* targets,
                            const float* row_max, const float* sum_exp, float scale,
                            device::Stream& stream, const float* told = nullptr);

}  // namespace sinew::kernels
