// The plain cross entropy parts. Row sums accumulate in f64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cross_entropy.h"

namespace sinew::kernels {
namespace {

template <typename T>
void max(const CrossEntropyShape& shape, const T* logits, T* row_max) {
  const std::int64_t valid = valid_columns(shape);
  for (std::int64_t r = 0; r < shape.rows; ++r, logits += shape.columns) {
    T largest = -std::numeric_limits<T>::infinity();
    for (std::int64_t c = 0; c < valid; ++c) {
      // A NaN wins, so that a broken logit reaches the loss instead of hiding.
      if (!(logits[c] <= largest)) largest = logits[c];
      if (std::isnan(largest)) break;
    }
    row_max[r] = largest;
  }
}

template <typename T>
void sums(const CrossEntropyShape& shape, const T* logits, const std::int32_t* targets,
          const T* row_max, T* sum_exp, T* target_logit) {
  const std::int64_t valid = valid_columns(shape);
  for (std::int64_t r = 0; r < shape.rows; ++r, logits += shape.columns) {
    double sum = 0;
    for (std::int64_t c = 0; c < valid; ++c) sum += std::exp(logits[c] - row_max[r]);
    sum_exp[r] = static_cast<T>(sum);
    const std::int64_t target = targets[r] - shape.first_column;
    const bool own = targets[r] >= 0 && target >= 0 && target < valid;
    target_logit[r] = own ? logits[target] - row_max[r] : T{0};
  }
}

template <typename T>
void backward(const CrossEntropyShape& shape, T* logits, const std::int32_t* targets,
              const T* row_max, const T* sum_exp, T scale) {
  const std::int64_t valid = valid_columns(shape);
  for (std::int64_t r = 0; r < shape.rows; ++r, logits += shape.columns) {
    const bool counts = targets[r] >= 0;
    const T factor = counts ? scale / sum_exp[r] : T{0};
    for (std::int64_t c = 0; c < valid; ++c) {
      logits[c] = counts ? std::exp(logits[c] - row_max[r]) * factor : T{0};
    }
    std::fill(logits + valid, logits + shape.columns, T{0});
    const std::int64_t target = targets[r] - shape.first_column;
    if (counts && target >= 0 && target < valid) logits[target] -= scale;
  }
}

}  // namespace

template <typename T>
const CrossEntropyFunctions<T>& cross_entropy_plain() {
  static constexpr CrossEntropyFunctions<T> table = {max<T>, sums<T>, backward<T>};
  return table;
}
template const CrossEntropyFunctions<float>& cross_entropy_plain();
template const CrossEntropyFunctions<double>& cross_entropy_plain();

}  // namespace sinew::kernels
