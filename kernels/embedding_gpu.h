// The embedding of embedding.h on device memory. T, the type of the table, the positions and y, is
// float or bf16; gradients of the tables are f32.
#pragma once

#include "kernels/device/runtime.h"
#include "kernels/embedding.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

template <typename T>
void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table,
                       const T* positions, T* y, device::Stream& stream);
// Tokens in increasing order for every row of a table: the CPU's bits. Cost: d_y read twice (once
// without d_positions), all tokens read by each block from cache.
template <typename T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* d_y,
                        float* d_table, float* d_positions, device::Stream& stream);

}  // namespace sinew::kernels
