// Token plus position embedding, vocab-parallel: this rank holds rows [first_row, first_row + rows) of the table.
// tokens: [B*T]; table: [rows, channels]; positions: [>= T, channels] or null; y: [B*T, channels].
#pragma once

#include <cstdint>

#include "kernels/threads.h"

namespace sinew::kernels {

struct EmbeddingShape {
  std::int64_t batch = 0;
  std::int64_t time = 0;
  std::int64_t channels = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
};

// y[b,t] = table[token - first_row] (zeros when the row is elsewhere) + positions[t] (unless null).
template <typename T>
void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table, const T* positions,
                       T* y, Threads threads = {});
// d_table += and d_positions += (unless null), tokens in increasing order: same bits on every run and thread count.
template <typename T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* d_y, T* d_table,
                        T* d_positions, Threads threads = {});

}  // namespace sinew::kernels
