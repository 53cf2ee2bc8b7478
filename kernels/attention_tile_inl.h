// The inner kernels of attention over a word type W (see gemm_tile_inl.h). Included only by the
// files that include a vector_*_inl.h.
#pragma once

#include <cstdint>

#include "kernels/attention_tile.h"
#include "kernels/exp2_inl.h"
#include "kernels/gemm_tile_inl.h"

namespace sinew::kernels {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr float kLowest = -0x1.fffffep127F;

// A score that its query must not see counts as minus infinity.
template <class V>
typename V::Vector masked(typename V::Vector score, std::int64_t key, std::int64_t diagonal) {
  return V::select_from(key - diagonal, score, constant<V>(kMinusInfinity));
}

// Rows [key, key + W::kElements) of a panel as weights, or d_scores, those past the last row 0.
// Vector v of single words stays in the scores; of pairs it is written where words.down and
// words.across say.
template <class W>
void write_weights(const ScoreWords& words, float* scores, std::int64_t key, std::int64_t keys,
                   int v, const typename W::Vector (&weight)[W::kElements]) {
  using V = typename W::V;
  if constexpr (W::kElements == 1) {
    V::store(scores + key * kScoreStride + v * V::kLanes, weight[0]);
  } else {
    if (words.down != nullptr)
      V::store(words.down + key / 2 * kScoreStride + v * V::kLanes, W::pair(weight[0], weight[1]));
    if (words.across == nullptr) return;
    auto* across = reinterpret_cast<typename W::Element*>(words.across);
    for (std::int64_t i = 0; i < 2 && key + i < keys; ++i)
      W::store(across + (key + i) * kScoreStride + v * V::kLanes, weight[i]);
  }
}

template <class W, int kVectors>
void softmax(const ScorePanel& panel, float* largest, float* sum, float* shrink) {
  using V = typename W::V;
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
    base[v] = V::max(top[v], constant<V>(kLowest));
    const Vector factor = exp2<V>(V::subtract(old[v], base[v]));
    total[v] = V::multiply(factor, V::load(sum + v * V::kLanes));
    V::store(shrink + v * V::kLanes, factor);
    V::store(largest + v * V::kLanes, top[v]);
  }
  for (std::int64_t key = 0; key < panel.keys; key += W::kElements) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Vector weight[W::kElements];
#pragma GCC unroll 2
      for (int i = 0; i < W::kElements; ++i) {
        const float* x = panel.scores + (key + i) * kScoreStride + v * V::kLanes;
        weight[i] =
            i > 0 && key + i >= panel.keys ? V::zero() : exp2<V>(V::subtract(V::load(x), base[v]));
        total[v] = V::add(total[v], weight[i]);
      }
      write_weights<W>(panel.words, panel.scores, key, panel.keys, v, weight);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) V::store(sum + v * V::kLanes, total[v]);
}

template <class W, int kVectors>
void softmax_backward(const ScorePanel& panel, float* d_weights, const ScoreWords& d_words,
                      const float* lse2, const float* row_dot) {
  using V = typename W::V;
  using Vector = typename V::Vector;
  Vector log_sum[kVectors];
  Vector dot[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    log_sum[v] = V::load(lse2 + v * V::kLanes);
    dot[v] = V::load(row_dot + v * V::kLanes);
  }
  for (std::int64_t key = 0; key < panel.keys; key += W::kElements) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Vector weight[W::kElements];
      Vector slope[W::kElements];
#pragma GCC unroll 2
      for (int i = 0; i < W::kElements; ++i) {
        weight[i] = slope[i] = V::zero();
        if (i > 0 && key + i >= panel.keys) continue;
        const std::int64_t at = (key + i) * kScoreStride + v * V::kLanes;
        Vector score = V::subtract(V::load(panel.scores + at), log_sum[v]);
        if (key + i > panel.diagonal)
          score = masked<V>(score, key + i, panel.diagonal + v * V::kLanes);
        weight[i] = exp2<V>(score);
        slope[i] = V::multiply(weight[i], V::subtract(V::load(d_weights + at), dot[v]));
      }
      write_weights<W>(panel.words, panel.scores, key, panel.keys, v, weight);
      write_weights<W>(d_words, d_weights, key, panel.keys, v, slope);
    }
  }
}

// Calls body(i, lanes) for every vector of `count` elements.
template <class V, typename Body>
void for_each_vector(std::int64_t count, Body&& body) {
  for (std::int64_t i = 0; i < count; i += V::kLanes) body(i, lanes_left<V>(count - i, 0));
}

template <class V>
void scale_row(float factor, const float* from, float* to, std::int64_t count) {
  for_each_vector<V>(count, [&](std::int64_t i, int lanes) {
    store_lanes<V>(to + i, V::multiply(constant<V>(factor), load_lanes<V>(from + i, lanes)), lanes);
  });
}

template <class V, typename T>
void narrow_row(const float* from, T* to, std::int64_t count) {
  for_each_vector<V>(count, [&](std::int64_t i, int lanes) {
    store_lanes<V>(to + i, load_lanes<V>(from + i, lanes), lanes);
  });
}

template <class V, typename T>
float dot(const T* x, const T* y, std::int64_t count) {
  auto sums = V::zero();
  for_each_vector<V>(count, [&](std::int64_t i, int lanes) {
    sums = V::multiply_add(load_lanes<V>(x + i, lanes), load_lanes<V>(y + i, lanes), sums);
  });
  return V::sum(sums);
}

template <class W, int kRows, int kVectors>
constexpr AttentionKernels<typename W::Element> make_attention_kernels(
    const GemmKernels<typename W::Element>* gemm) {
  using V = typename W::V;
  using Element = typename W::Element;
  return {.gemm = gemm,
          .multiply_across =
              [](const GemmTile<Element>& tile) {
                multiply_any<W, kVectors, Right::kPacked, kScoreStride / W::kElements>(
                    tile, std::make_integer_sequence<int, kRows>{});
              },
          .softmax = softmax<W, kVectors>,
          .softmax_backward = softmax_backward<W, kVectors>,
          .scale_row = scale_row<V>,
          .narrow_row = narrow_row<V, Element>,
          .dot = dot<V, Element>};
}

}  // namespace
}  // namespace sinew::kernels
