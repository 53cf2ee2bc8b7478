// The seam between the blocking of attention (attention_blocked.cc, plain C++) and its inner
// kernels (one file per instruction set).
//
// A block of scores is kept transposed, scores[key, query], with a row stride of kScoreStride: a
// vector then holds one key's scores for neighbouring queries, so that the softmax needs no sum or
// maximum across lanes, and the block is an operand of every later product as it lies:
//   o   += P^T' V     A = scores read along keys,    GemmKernels::multiply with a_step kScoreStride
//   d_q += dS^T' K    the same
//   d_v += P^T d_o    A = scores read along queries, multiply_scores
//   d_k += dS^T q     the same
#pragma once

#include <cstdint>

#include "kernels/gemm_tile.h"

namespace sinew::kernels {

inline constexpr std::int64_t kScoreQueries = 128;
// One more cache line than the queries need, so that the rows of a column lie in different sets.
inline constexpr std::int64_t kScoreStride = kScoreQueries + 16;

// Columns [0, width) of a block, width = GemmKernels::tile_columns. Lane i sees key j iff
// j <= i + diagonal; keys is the number of rows that must hold a weight afterwards, 0 where unseen.
struct ScorePanel {
  float* scores = nullptr;
  std::int64_t keys = 0;
  std::int64_t diagonal = 0;
};

struct AttentionKernels {
  const GemmKernels<float>* gemm = nullptr;
  // As GemmKernels::multiply, with A stored [rows, kScoreStride].
  void (*multiply_scores)(const GemmTile<float>& tile) = nullptr;
  // scores (base-2 logarithms of weights) become weights 2^(score - largest). largest and sum are
  // updated; shrink[i] = 2^(old largest - new largest) is what earlier sums must be multiplied by.
  void (*softmax)(const ScorePanel& panel, float* largest, float* sum, float* shrink) = nullptr;
  // scores become weights P = 2^(score - lse2); d_weights become d_scores = P (d_weights -
  // row_dot).
  void (*softmax_backward)(const ScorePanel& panel, float* d_weights, const float* lse2,
                           const float* row_dot) = nullptr;
  // to[0..count) = factor * from
  void (*scale_row)(float factor, const float* from, float* to, std::int64_t count) = nullptr;
  float (*dot)(const float* x, const float* y, std::int64_t count) = nullptr;
};

// Null when the compiler's target architecture lacks the instruction set.
[[nodiscard]] const AttentionKernels* attention_kernels_portable();
[[nodiscard]] const AttentionKernels* attention_kernels_avx2();
[[nodiscard]] const AttentionKernels* attention_kernels_avx512();

}  // namespace sinew::kernels
