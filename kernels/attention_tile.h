// The seam between the blocking of attention (attention_blocked.cc, plain C++) and its inner
// kernels (one file per instruction set).
//
// A block of scores is kept transposed, scores[key, query], with a row stride of kScoreStride: a
// vector then holds one key's scores for neighbouring queries, so that the softmax needs no sum or
// maximum across lanes, and the block is an operand of every later product as it lies:
//   o   += P^T' V     A read along keys,    GemmKernels::multiply with a_step kScoreStride
//   d_q += dS^T' K    the same
//   d_v += P^T d_o    A read along queries, multiply_across
//   d_k += dS^T q     the same
// Where a word of a panel is one float, both readings are of the scores themselves. Where it is two
// bf16, the weights are written once more for each: `down`, words of two keys, [keys / 2, queries],
// and `across`, words of two queries, [keys, queries / 2].
#pragma once

#include <cstdint>

#include "kernels/gemm_tile.h"

namespace sinew::kernels {

inline constexpr std::int64_t kScoreQueries = 128;
// One more cache line than the queries need, so that the rows of a column lie in different sets.
inline constexpr std::int64_t kScoreStride = kScoreQueries + 16;

// What is written besides scores; none when null. Row strides: kScoreStride words down, half of it
// across. Where words are single floats both are null.
struct ScoreWords {
  float* down = nullptr;
  float* across = nullptr;
};

// Columns [0, width) of a block, width = GemmKernels::tile_columns. Lane i sees key j iff
// j <= i + diagonal; keys is the number of rows that must hold a weight afterwards, 0 where unseen.
struct ScorePanel {
  float* scores = nullptr;
  ScoreWords words{};
  std::int64_t keys = 0;
  std::int64_t diagonal = 0;
};

template <typename T>
struct AttentionKernels {
  const GemmKernels<T>* gemm = nullptr;
  // As GemmKernels::multiply, with A read across: word (row, k) lies at
  // a[row * kScoreStride / word_elements + k].
  void (*multiply_across)(const GemmTile<T>& tile) = nullptr;
  // scores (base-2 logarithms of weights) become weights 2^(score - largest). largest and sum are
  // updated; shrink[i] = 2^(old largest - new largest) is what earlier sums must be multiplied by.
  void (*softmax)(const ScorePanel& panel, float* largest, float* sum, float* shrink) = nullptr;
  // scores become weights P = 2^(score - lse2); d_weights become d_scores = P (d_weights -
  // row_dot).
  void (*softmax_backward)(const ScorePanel& panel, float* d_weights, const ScoreWords& d_words,
                           const float* lse2, const float* row_dot) = nullptr;
  // to[0..count) = factor * from
  void (*scale_row)(float factor, const float* from, float* to, std::int64_t count) = nullptr;
  void (*narrow_row)(const float* from, T* to, std::int64_t count) = nullptr;
  float (*dot)(const T* x, const T* y, std::int64_t count) = nullptr;
};

// Null when the compiler's target architecture lacks the instruction set.
[[nodiscard]] const AttentionKernels<float>* attention_kernels_portable();
[[nodiscard]] const AttentionKernels<float>* attention_kernels_avx2();
[[nodiscard]] const AttentionKernels<float>* attention_kernels_avx512();
[[nodiscard]] const AttentionKernels<bf16>* attention_bf16_kernels_portable();
[[nodiscard]] const AttentionKernels<bf16>* attention_bf16_kernels_avx2();
[[nodiscard]] const AttentionKernels<bf16>* attention_bf16_kernels_avx512();
[[nodiscard]] const AttentionKernels<bf16>* attention_bf16_kernels_avx512bf16();

}  // namespace sinew::kernels
