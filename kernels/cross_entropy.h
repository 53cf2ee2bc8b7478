// Softmax cross entropy in its vocab-parallel form. A rank holds columns [first_column,
// first_column + columns) of the logits; only those below `vocabulary` count (padding never enters
// the loss). Between the parts the caller reduces three [rows] arrays over the ranks: max (max),
// sum_exp (sum), target_logit (sum). logits: [rows, columns] row-major, float, double or bf16;
// targets: [rows], global columns, or -1 for a position without loss. Arithmetic and the [rows]
// arrays are Wide<T>.
//
//   1. cross_entropy_max      row_max[r] = max over own valid columns (-inf when there are none)
//   2. cross_entropy_sums     after the max reduction: sum_exp[r] = sum exp(logit - row_max[r]);
//                             target_logit[r] = logit[target] - row_max[r] on its owner, else 0
//   3. cross_entropy_loss     after the sum reductions: loss[r] = log(sum_exp) - target_logit; 0
//   where target is -1
//   4. cross_entropy_backward logits become d_logits = (softmax - onehot) * scale, in place; 0 for
//   padding columns
//                             and for rows whose target is -1
//
// A NaN in a valid column makes sum_exp and the loss NaN (the maximum may pass over it). Without a
// reduction between them, 1 and 2 give the loss of one rank. Error, float, u = 2^-24: each
// exp(logit - row_max) has relative error u (4 + 2 |logit - row_max|), of bf16 logits 52 u more;
// sums of n columns u (n/1024 + 40) more.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
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
// The rank's column of a target, or -1 when the position has no loss or another rank owns the
// target.
constexpr std::int64_t own_target(const CrossEntropyShape& shape, std::int32_t target) {
  const std::int64_t column = target - shape.first_column;
  return target >= 0 && column >= 0 && column < valid_columns(shape) ? column : -1;
}
constexpr CrossEntropyShape rows_of(CrossEntropyShape shape, std::int64_t begin, std::int64_t end) {
  shape.rows = end - begin;
  return shape;
}

template <typename T>
void cross_entropy_max(const CrossEntropyShape& shape, const T* logits, Wide<T>* row_max,
                       Threads threads = {});
template <typename T>
void cross_entropy_sums(const CrossEntropyShape& shape, const T* logits,
                        const std::int32_t* targets, const Wide<T>* row_max, Wide<T>* sum_exp,
                        Wide<T>* target_logit, Threads threads = {});
template <typename T>
void cross_entropy_loss(std::int64_t rows, const std::int32_t* targets, const T* sum_exp,
                        const T* target_logit, T* loss, Threads threads = {});
template <typename T>
void cross_entropy_backward(const CrossEntropyShape& shape, T* logits, const std::int32_t* targets,
                            const Wide<T>* row_max, const Wide<T>* sum_exp, Wide<T> scale,
                            Threads threads = {});

// What one version provides; see registry.h.
template <typename T>
struct CrossEntropyFunctions {
  static constexpr std::string_view kOperation = "cross_entropy";
  using Element = T;
  void (*max)(const CrossEntropyShape& shape, const T* logits, Wide<T>* row_max);
  void (*sums)(const CrossEntropyShape& shape, const T* logits, const std::int32_t* targets,
               const Wide<T>* row_max, Wide<T>* sum_exp, Wide<T>* target_logit);
  void (*backward)(const CrossEntropyShape& shape, T* logits, const std::int32_t* targets,
                   const Wide<T>* row_max, const Wide<T>* sum_exp, Wide<T> scale);
};
template <typename T>
[[nodiscard]] const CrossEntropyFunctions<T>& cross_entropy_plain();
// Null where this build has no code for `isa`; float and bf16.
template <typename T>
[[nodiscard]] const CrossEntropyFunctions<T>* cross_entropy_simd(Isa isa);

}  // namespace sinew::kernels
