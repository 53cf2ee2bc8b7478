// Causal self-attention without storing the T x T scores: online softmax forward, recomputation
// backward. Milakov and Gimelshein 2018; Dao et al., FlashAttention, 2022.
//
// q, k, v, o and their gradients are views: element (b, t, h, d) of x lies at x + b*x.batch_stride
// + t*x.time_stride + h*head_dim + d, so that a fused QKV matrix [B, T, 3*H*D] needs no copy.
// Outputs must not overlap inputs. lse: [B, H, T], the natural log of the sum of exponentials of
// the scaled scores of a row. scale = 1/sqrt(head_dim). kv_heads divides heads (grouped-query
// attention): query head h reads key-value head h / (heads / kv_heads).
//
// Query t sees keys 0..t, or what a KeySpan says. A NaN or infinity in a query spoils its own row;
// in a key or value, at least the queries that see it, at most also others near the diagonal.
//
// Cost, causal: forward 2 B H T^2 D flops, backward 5 B H T^2 D, of which the kernels compute
// little more than that; the softmax adds T^2/2 exponentials to each. Extra memory: O(T * head_dim)
// per thread, whatever T. Error: relative to |P||V| a row's o errs by about (T + 12) u to first
// order: T roundings of the sums, 12 of the scores' exponentials when |score| <= 8 (a score's
// absolute error becomes its weight's relative error).
//
// Threads share out the (batch, key-value head) pairs; every thread count gives the same bits.
//
// T is float, double or bf16; double is the reference mode and runs the plain version. bf16:
// scores, softmax and every sum are f32, as are lse and all results of the partial form, which
// travel around a ring; the whole form rounds its results once. Versions that multiply pairs of
// bf16 (avx512bf16) also round weights and their gradients to bf16 before they multiply, which adds
// 2^-8 |P||V| to the error of o and its like to the gradients.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/threads.h"
#include "sched/base/partition.h"

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
                       HeadView<const T> v, HeadView<T> o, Wide<T>* lse, Threads threads = {});

// Writes (not accumulates) d_q, d_k, d_v. Needs o and lse of the forward pass.
template <typename T>
void attention_backward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                        HeadView<const T> v, HeadView<const T> o, const Wide<T>* lse,
                        HeadView<const T> d_o, HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v,
                        Threads threads = {});

// Sequences of different lengths, one behind the other without padding: sequence i is tokens
// [starts[i], starts[i + 1]) of every view and sees itself only. starts: one more than there are
// sequences, not decreasing; a sequence may be empty. shape.batch, shape.time and batch_stride are
// not used. lse of sequence i: [H, its length], at H * starts[i]. Each sequence's results are those
// of the whole form on it alone, bit for bit; tokens outside the sequences are left alone.
template <typename T>
void attention_forward_packed(const AttentionShape& shape, std::span<const std::int64_t> starts,
                              HeadView<const T> q, HeadView<const T> k, HeadView<const T> v,
                              HeadView<T> o, Wide<T>* lse, Threads threads = {});
template <typename T>
void attention_backward_packed(const AttentionShape& shape, std::span<const std::int64_t> starts,
                               HeadView<const T> q, HeadView<const T> k, HeadView<const T> v,
                               HeadView<const T> o, const Wide<T>* lse, HeadView<const T> d_o,
                               HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v,
                               Threads threads = {});

// The partial form, for attention over a sequence whose keys are spread over ranks (ring
// attention). k and v hold `time` keys; query t (of shape.time) sees key s iff s <= t + diagonal.
// For a query block that starts at global position i and a key block at j, diagonal = i - j; time
// or more means every key, -shape.time or less means none.
struct KeySpan {
  std::int64_t time = 0;
  std::int64_t diagonal = 0;
};

// o and lse hold the result over the keys of earlier calls and afterwards over these keys too, in
// any order of the blocks: o = sum of o_i exp(lse_i - lse), lse = log sum exp(lse_i). Before the
// first call o is 0 and lse is -infinity; a query that has seen no key keeps these values.
template <typename T>
void attention_forward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const T> q,
                               HeadView<const T> k, HeadView<const T> v, HeadView<Wide<T>> o,
                               Wide<T>* lse, Threads threads = {});

// Adds the gradients through these keys to d_q [B, shape.time], d_k and d_v [B, keys.time]. lse is
// the final one, over all keys; row_dot: [B, H, T] from attention_row_dot with the final o.
template <typename T>
void attention_backward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const T> q,
                                HeadView<const T> k, HeadView<const T> v, const Wide<T>* lse,
                                const Wide<T>* row_dot, HeadView<const T> d_o,
                                HeadView<Wide<T>> d_q, HeadView<Wide<T>> d_k, HeadView<Wide<T>> d_v,
                                Threads threads = {});

// row_dot[b, h, t] = sum over d of o d_o.
template <typename T>
void attention_row_dot(const AttentionShape& shape, HeadView<const T> o, HeadView<const T> d_o,
                       Wide<T>* row_dot, Threads threads = {});

// What one version provides; see registry.h. Runs on the calling thread over the given range of
// (batch, key-value head) pairs, numbered b * kv_heads + kv_head. forward and backward accumulate
// as the partial form does.
template <typename T>
struct AttentionFunctions {
  static constexpr std::string_view kOperation = "attention";
  using Element = T;
  void (*forward)(const AttentionShape& shape, KeySpan keys, Part pairs, HeadView<const T> q,
                  HeadView<const T> k, HeadView<const T> v, HeadView<Wide<T>> o,
                  Wide<T>* lse) = nullptr;
  void (*backward)(const AttentionShape& shape, KeySpan keys, Part pairs, HeadView<const T> q,
                   HeadView<const T> k, HeadView<const T> v, const Wide<T>* lse,
                   const Wide<T>* row_dot, HeadView<const T> d_o, HeadView<Wide<T>> d_q,
                   HeadView<Wide<T>> d_k, HeadView<Wide<T>> d_v) = nullptr;
  void (*row_dot)(const AttentionShape& shape, Part pairs, HeadView<const T> o,
                  HeadView<const T> d_o, Wide<T>* row_dot) = nullptr;
  void (*narrow_row)(const Wide<T>* from, T* to, std::int64_t count) = nullptr;
};

template <typename T>
[[nodiscard]] const AttentionFunctions<T>& attention_plain();
// Null where this build has no kernels for `isa`. T is float or bf16.
template <typename T>
[[nodiscard]] const AttentionFunctions<T>* attention_fast(Isa isa);

}  // namespace sinew::kernels
