// Attention of one layer on one rank, over a sequence that the ranks of context parallelism may
// share: on one rank alone, round a ring of ranks, or with heads traded for positions
// (sched/plan/context.h).
//
// Never does: keep anything between forward and backward; what backward needs it finds in the
// caller's buffers. Owns workspace that all layers of a rank share. Threads: one rank, one thread.
// T is float, double or bf16; log-sums, and what accumulates block by block, are Wide<T>.
//
// Shapes, on this rank: T positions, H heads, K key/value heads of d channels.
//   qkv, d_qkv              [B, T, (H + 2 K) d], queries then keys then values
//   attention, d_attention  [B, T, H d]
//   lse                     B T H elements, in an order of this object's own
#pragma once

#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "kernels/attention.h"
#include "model/arena.h"
#include "sched/plan/context.h"

namespace sinew::model {

template <typename T>
class Attention {
 public:
  virtual ~Attention() = default;
  // Leaves in qkv what backward wants to find there.
  virtual void forward(T* qkv, T* attention, kernels::Wide<T>* lse, kernels::Threads threads) = 0;
  virtual void backward(const T* qkv, const T* attention, const kernels::Wide<T>* lse,
                        const T* d_attention, T* d_qkv, kernels::Threads threads) = 0;
};

// context: null where one rank holds the whole sequence. shape.time: positions on this rank.
template <typename T>
[[nodiscard]] std::unique_ptr<Attention<T>> make_attention(const kernels::AttentionShape& shape,
                                                           sched::ContextMode mode,
                                                           comm::Communicator* context,
                                                           Arena& workspace);

// Of the two ways with ranks, which make_attention chooses from.
//
// Ring: c - 1 messages of keys and values forward, as many again backward, and c of their
// gradients (Wide<T>), which end where they belong; each 2 B T K d elements. The next block travels
// while this one is computed on. Partial results are merged by their log-sums
// (kernels/attention.h).
template <typename T>
[[nodiscard]] std::unique_ptr<Attention<T>> make_ring_attention(
    const kernels::AttentionShape& shape, sched::ContextMode mode, comm::Communicator& context,
    Arena& workspace);
// Ulysses: every rank computes all positions of H / c heads. Per layer c - 1 messages of
// B T (H + 2 K) d / c elements, and of B T H d / c, forward; backward the same and B T H / c
// row sums (Wide<T>) with the second. Each is a posted receive and a started send to every other
// rank.
template <typename T>
[[nodiscard]] std::unique_ptr<Attention<T>> make_ulysses_attention(
    const kernels::AttentionShape& shape, comm::Communicator& context, Arena& workspace);

}  // namespace sinew::model
