// The plain embedding lookup and scatter-add.
#include "kernels/embedding.h"

namespace sinew::kernels {
namespace {

template <typename T>
void forward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table,
             const T* positions, T* y, std::int64_t first_token, std::int64_t last_token) {
  const std::int64_t channels = shape.channels;
  for (std::int64_t i = first_token; i < last_token; ++i) {
    const std::int64_t row = tokens[i] - shape.first_row;
    const bool own = row >= 0 && row < shape.rows;
    for (std::int64_t c = 0; c < channels; ++c) {
      Wide<T> value = own ? widen(table[row * channels + c]) : Wide<T>{0};
      if (positions != nullptr) value += widen(positions[(i % shape.time) * channels + c]);
      y[i * channels + c] = narrow<T>(value);
    }
  }
}

template <typename T>
void backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* d_y,
              Wide<T>* d_table, Wide<T>* d_positions, std::int64_t begin, std::int64_t end) {
  const std::int64_t channels = shape.channels;
  for (std::int64_t i = 0; i < shape.batch * shape.time; ++i) {
    const std::int64_t row = tokens[i] - shape.first_row;
    const bool own = row >= 0 && row < shape.rows;
    for (std::int64_t c = begin; c < end; ++c) {
      const Wide<T> gradient = widen(d_y[i * channels + c]);
      if (own) d_table[row * channels + c] += gradient;
      if (d_positions != nullptr) d_positions[(i % shape.time) * channels + c] += gradient;
    }
  }
}

}  // namespace

template <typename T>
const EmbeddingFunctions<T>& embedding_plain() {
  static constexpr EmbeddingFunctions<T> table = {forward<T>, backward<T>};
  return table;
}
template const EmbeddingFunctions<float>& embedding_plain();
template const EmbeddingFunctions<double>& embedding_plain();
template const EmbeddingFunctions<bf16>& embedding_plain();

}  // namespace sinew::kernels
