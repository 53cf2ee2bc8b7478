// Causal self-attention without storing the T x T scores: online softmax forward, recomputation
// backward. Milakov and Gimelshein 2018; Dao et al., FlashAttention, 2022.
//
// q, k, v, o and their gradients are views: element (b, t, h, d) of x lies at x + b*x.batch_stride
// + t*x.time_stride + h*head_dim + d, so that a fused QKV matrix [B, T, 3*H*D] needs no copy. lse:
// [B, H, T], the log of the sum of exponentials of the scaled scores of a row. scale =
// 1/sqrt(head_dim). Query t sees keys 0..t. kv_heads divides heads (grouped-query attention).
#pragma once

#include <cstdint>

#include "kernels/threads.h"

namespace sinew::kernels {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t time = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
};

template <typename T>
struct HeadView {
  T* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t time_stride = 0;
};

template <typename T>
void attention_forward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                       HeadView<const T> v, HeadView<T> o, T* lse, Threads threads = {});

// Writes (not accumulates) d_q, d_k, d_v. Needs o and lse of the forward pass.
// Extra memory: O(T * head_dim) per thread, whatever T.
template <typename T>
void attention_backward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                        HeadView<const T> v, HeadView<const T> o, const T* lse,
                        HeadView<const T> d_o, HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v,
                        Threads threads = {});

}  // namespace sinew::kernels
