// Attention on device memory: the forms of attention.h on tensor cores, bf16 in, f32 sums.
// Dao, "FlashAttention-2", 2023: tiles of queries meet tiles of keys in shared memory, the softmax
// is carried along in registers.
//
// Views as in attention.h. head_dim is a multiple of 8 and at most kAttentionWidthMax; views begin
// at multiples of 16 bytes and their strides are multiples of 8 elements (fused QKV matrices of
// such heads are). lse and row_dot are f32 [B, H, T].
//
// Error: weights and their gradients are rounded to bf16 before they are multiplied, results of
// the whole form once more: about two roundings of bf16 in norm. Same bits on every run: the
// backward pass adds in a fixed order, without atomics.
//
// Cost: forward 2 B H T^2 D flops when causal; backward 7, of which the two score products are
// computed twice, once for d_q and once for d_k and d_v. O(1) memory beyond row_dot.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/device/runtime.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

constexpr std::int64_t kAttentionWidthMax = 128;

void attention_forward(const AttentionShape& shape, HeadView<const bf16> q, HeadView<const bf16> k,
                       HeadView<const bf16> v, HeadView<bf16> o, float* lse,
                       device::Stream& stream);

// row_dot is workspace, B H T floats.
void attention_backward(const AttentionShape& shape, HeadView<const bf16> q, HeadView<const bf16> k,
                        HeadView<const bf16> v, HeadView<const bf16> o, const float* lse,
                        HeadView<const bf16> d_o, HeadView<bf16> d_q, HeadView<bf16> d_k,
                        HeadView<bf16> d_v, float* row_dot, device::Stream& stream);

// The partial form accumulates in f32.
void attention_forward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const bf16> q,
                               HeadView<const bf16> k, HeadView<const bf16> v, HeadView<float> o,
                               float* lse, device::Stream& stream);
void attention_backward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const bf16> q,
                                HeadView<const bf16> k, HeadView<const bf16> v, const float* lse,
                                const float* row_dot, HeadView<const bf16> d_o, HeadView<float> d_q,
                                HeadView<float> d_k, HeadView<float> d_v, device::Stream& stream);

// T is bf16 or float.
template <typename T>
void attention_row_dot(const AttentionShape& shape, HeadView<const T> o, HeadView<const bf16> d_o,
                       float* row_dot, device::Stream& stream);

}  // namespace sinew::kernels
