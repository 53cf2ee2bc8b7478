// Token plus position embedding, vocab-parallel: this rank holds rows [first_row, first_row + rows)
// of the table. tokens: [B*T]; table: [rows, channels]; positions: [>= T, channels] or null; y:
// [B*T, channels].
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
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
void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table,
                       const T* positions, T* y, Threads threads = {});
// d_table += and d_positions += (unless null), tokens in increasing order: same bits on every run
// and thread count.
template <typename T>
void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* d_y,
                        Wide<T>* d_table, Wide<T>* d_positions, Threads threads = {});

// What one version provides; see registry.h. Channel ranges [begin, end) let threads share the
// scatter.
template <typename T>
struct EmbeddingFunctions {
  static constexpr std::string_view kOperation = "embedding";
  using Element = T;
  void (*forward)(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table,
                  const T* positions, T* y, std::int64_t first_token, std::int64_t last_token);
  void (*backward)(const EmbeddingShape& shape, const std::int32_t* tokens, const T* d_y,
                   Wide<T>* d_table, Wide<T>* d_positions, std::int64_t begin, std::int64_t end);
};
template <typename T>
[[nodiscard]] const EmbeddingFunctions<T>& embedding_plain();
// Null where this build has no code for `isa`; float and bf16.
template <typename T>
[[nodiscard]] const EmbeddingFunctions<T>* embedding_simd(Isa isa);

}  // namespace sinew::kernels
