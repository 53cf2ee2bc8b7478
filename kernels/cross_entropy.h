// Softmax cross entropy in its vocab-parallel form. A rank holds columns [first_column,
// first_column + columns) of the logits; only those below `vocabulary` count (padding never enters
// the loss). Between the parts the caller reduces three [rows] arrays over the ranks: max (max),
// sum_exp (sum), target_logit (sum). logits: [rows, columns] row-major; targets: [rows], global
// columns, or -1 for a position without loss.
//
//   1. cross_entropy_max      row_max[r] = max over own valid columns (-inf when there are none)
//   2. cross_entropy_sums     after the max reduction: sum_exp[r] = sum exp(logit - row_max[r]);
//                             target_logit[r] = logit[target] - row_max[r] on its owner, else 0
//   3. cross_entropy_loss     after the sum reductions: loss[r] = log(sum_exp) - target_logit; 0
//   where target is -1
//   4. cross_entropy_backward logits become d_logits = (softmax - onehot) * scale, in place; 0 for
//   padding columns
//                             and for rows whose target is -1
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/threads.h"

namespace sinew::kernels {

struct CrossEntropyShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t first_column = 0;
  std::int64_t vocabulary = 0;
};

// How many of the rank's columns lie below `vocabulary`: the first ones.
constexpr std::int64_t valid_columns(const CrossEntropyShape& shape) {
  const std::int64_t valid = shape.vocabulary - shape.first_column;
  return valid < 0 ? 0 : valid < shape.columns ? valid : shape.columns;
}
constexpr CrossEntropyShape rows_of(CrossEntropyShape shape, std::int64_t begin, std::int64_t end) {
  shape.rows = end - begin;
  return shape;
}

template <typename T>
void cross_entropy_max(const CrossEntropyShape& shape, const T* logits, T* row_max,
                       Threads threads = {});
template <typename T>
void cross_entropy_sums(const CrossEntropyShape& shape, const T* logits,
                        const std::int32_t* targets, const T* row_max, T* sum_exp, T* target_logit,
                        Threads threads = {});
template <typename T>
void cross_entropy_loss(std::int64_t rows, const std::int32_t* targets, const T* sum_exp,
                        const T* target_logit, T* loss);
template <typename T>
void cross_entropy_backward(const CrossEntropyShape& shape, T* logits, const std::int32_t* targets,
                            const T* row_max, const T* sum_exp, T scale, Threads threads = {});

// What one version provides; see registry.h.
template <typename T>
struct CrossEntropyFunctions {
  static constexpr std::string_view kOperation = "cross_entropy";
  using Element = T;
  void (*max)(const CrossEntropyShape& shape, const T* logits, T* row_max);
  void (*sums)(const CrossEntropyShape& shape, const T* logits, const std::int32_t* targets,
               const T* row_max, T* sum_exp, T* target_logit);
  void (*backward)(const CrossEntropyShape& shape, T* logits, const std::int32_t* targets,
                   const T* row_max, const T* sum_exp, T scale);
};
template <typename T>
[[nodiscard]] const CrossEntropyFunctions<T>& cross_entropy_plain();

}  // namespace sinew::kernels
