// The inner kernels of attention over a vector type V (see gemm_tile_inl.h). Included only by the
// files that include a vector_*_inl.h.
#pragma once

#include <cstdint>

#include "kernels/attention_tile.h"
#include "kernels/exp2_inl.h"
#include "kernels/gemm_tile_inl.h"

namespace sinew::kernels {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// A score that its query must not see counts as minus infinity.
template <class V>
typename V::Vector masked(typename V::Vector score, std::int64_t key, std::int64_t diagonal) {
  return V::select_from(key - diagonal, score, constant<V>(kMinusInfinity));
}

template <class V, int kVectors>
void softmax(const ScorePanel& panel, float* largest, float* sum, float* shrink) {
  using Vector = typename V::Vector;
  Vector old[kVectors];
  Vector top[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) top[v] = old[v] = V::load(largest + v * V::kLanes);
  for (std::int64_t key = 0; key < panel.keys; ++key) {
    float* row = panel.scores + key * kScoreStride;
    const bool seen_by_all = key <= panel.diagonal;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* x = row + v * V::kLanes;
      if (!seen_by_all) V::store(x, masked<V>(V::load(x), key, panel.diagonal + v * V::kLanes));
      top[v] = V::max(V::load(x), top[v]);
    }
  }
  Vector total[kVectors];
  Vector base[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    // A query that has seen no key yet has largest = -inf; any finite base gives it weights of 0.
    base[v] = V::max(top[v], constant<V>(-0x1.fffffep127F));
    const Vector factor = exp2<V>(V::subtract(old[v], base[v]));
    total[v] = V::multiply(factor, V::load(sum + v * V::kLanes));
    V::store(shrink + v * V::kLanes, factor);
    V::store(largest + v * V::kLanes, top[v]);
  }
  for (std::int64_t key = 0; key < panel.keys; ++key) {
    float* row = panel.scores + key * kScoreStride;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vector weight = exp2<V>(V::subtract(V::load(row + v * V::kLanes), base[v]));
      total[v] = V::add(total[v], weight);
      V::store(row + v * V::kLanes, weight);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) V::store(sum + v * V::kLanes, total[v]);
}

template <class V, int kVectors>
void softmax_backward(const ScorePanel& panel, float* d_weights, const float* lse2,
                      const float* row_dot) {
  using Vector = typename V::Vector;
  Vector log_sum[kVectors];
  Vector dot[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    log_sum[v] = V::load(lse2 + v * V::kLanes);
    dot[v] = V::load(row_dot + v * V::kLanes);
  }
  for (std::int64_t key = 0; key < panel.keys; ++key) {
    float* row = panel.scores + key * kScoreStride;
    float* d_row = d_weights + key * kScoreStride;
    const bool seen_by_all = key <= panel.diagonal;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Vector score = V::subtract(V::load(row + v * V::kLanes), log_sum[v]);
      if (!seen_by_all) score = masked<V>(score, key, panel.diagonal + v * V::kLanes);
      const Vector weight = exp2<V>(score);
      const Vector slope = V::subtract(V::load(d_row + v * V::kLanes), dot[v]);
      V::store(row + v * V::kLanes, weight);
      V::store(d_row + v * V::kLanes, V::multiply(weight, slope));
    }
  }
}

template <class V>
void scale_row(float factor, const float* from, float* to, std::int64_t count) {
  const auto scale = V::broadcast(&factor);
  std::int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes)
    V::store(to + i, V::multiply(scale, V::load(from + i)));
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    V::store_partial(to + i, V::multiply(scale, V::load_partial(from + i, rest)), rest);
  }
}

template <class V>
float dot(const float* x, const float* y, std::int64_t count) {
  auto sums = V::zero();
  std::int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes)
    sums = V::multiply_add(V::load(x + i), V::load(y + i), sums);
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    sums = V::multiply_add(V::load_partial(x + i, rest), V::load_partial(y + i, rest), sums);
  }
  return V::sum(sums);
}

template <class V, int kRows, int kVectors>
constexpr AttentionKernels make_attention_kernels(const GemmKernels<float>* gemm) {
  return {.gemm = gemm,
          .multiply_scores =
              [](const GemmTile<float>& tile) {
                multiply_any<FloatWords<V>, kVectors, Right::kPacked, kScoreStride>(
                    tile, std::make_integer_sequence<int, kRows>{});
              },
          .softmax = softmax<V, kVectors>,
          .softmax_backward = softmax_backward<V, kVectors>,
          .scale_row = scale_row<V>,
          .dot = dot<V>};
}

}  // namespace
}  // namespace sinew::kernels
