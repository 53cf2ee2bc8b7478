// The plain cross entropy parts. Row sums accumulate in f64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cross_entropy.h"

namespace sinew::kernels {
namespace {

template <typename T>
void max(const CrossEntropyShape& shape, const T* logits, Wide<T>* row_max) {
  const std::int64_t valid = valid_columns(shape);
  for (std::int64_t r = 0; r < shape.rows; ++r, logits += shape.columns) {
    Wide<T> largest = -std::numeric_limits<Wide<T>>::infinity();
    for (std::int64_t c = 0; c < valid; ++c) largest = std::max(largest, widen(logits[c]));
    row_max[r] = largest;
  }
}

template <typename T>
void sums(const CrossEntropyShape& shape, const T* logits, const std::int32_t* targets,
          const Wide<T>* row_max, Wide<T>* sum_exp, Wide<T>* target_logit) {
  const std::int64_t valid = valid_columns(shape);
  for (std::int64_t r = 0; r < shape.rows; ++r, logits += shape.columns) {
    double sum = 0;
    for (std::int64_t c = 0; c < valid; ++c) sum += std::exp(widen(logits[c]) - row_max[r]);
    sum_exp[r] = static_cast<Wide<T>>(sum);
    const std::int64_t target = own_target(shape, targets[r]);
    target_logit[r] = target >= 0 ? widen(logits[target]) - row_max[r] : Wide<T>{0};
  }
}

template <typename T>
void backward(const CrossEntropyShape& shape, T* logits, const std::int32_t* targets,
              const Wide<T>* row_max, const Wide<T>* sum_exp, Wide<T> scale) {
  const std::int64_t valid = valid_columns(shape);
  for (std::int64_t r = 0; r < shape.rows; ++r, logits += shape.columns) {
    const bool counts = targets[r] >= 0;
    const std::int64_t target = own_target(shape, targets[r]);
    for (std::int64_t c = 0; c < shape.columns; ++c) {
      Wide<T> gradient = 0;
      if (counts && c < valid) {
        gradient = std::exp(widen(logits[c]) - row_max[r]) * (scale / sum_exp[r]);
        if (c == target) gradient -= scale;
      }
      logits[c] = narrow<T>(gradient);
    }
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
template const CrossEntropyFunctions<bf16>& cross_entropy_plain();

}  // namespace sinew::kernels
