// Block: one transformer layer, forward and backward, on one tensor-parallel rank.
//
//   x2  = x  + attention(LN(x))  Wo + bo      Wqkv column-parallel by heads, Wo row-parallel
//   out = x2 + gelu(LN(x2) Wf + bf) Wp + bp   Wf column-parallel, Wp row-parallel
//
// Exactly two all-reduces of B T C elements forward (after Wo and after Wp) and two backward (the
// gradients of the two LN outputs) per layer and microbatch; a row-parallel bias is added once,
// after the reduction. Megatron-LM, Shoeybi et al. 2019.
//
// Never does: own memory (the arenas do) or know about pipelines and data parallelism. T is float
// or double.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "kernels/threads.h"
#include "model/arena.h"
#include "model/config.h"
#include "model/layout.h"
#include "sched/plan/memory.h"

namespace sinew::model {

inline constexpr double kNormEpsilon = 1e-5;  // GPT-2's

// Sizes of one microbatch on one rank; `l` is local to the tensor-parallel rank.
struct BlockShape {
  std::int64_t batch = 0;
  std::int64_t time = 0;
  std::int64_t channels = 0;
  std::int64_t heads = 0;  // local
  std::int64_t head_dim = 0;

  BlockShape(const Config& config, std::int64_t batch_count, std::int64_t time_count,
             int tensor_world)
      : batch(batch_count),
        time(time_count),
        channels(config.channels),
        heads(config.heads / tensor_world),
        head_dim(config.head_dim()) {}
  [[nodiscard]] std::int64_t rows() const { return batch * time; }
  [[nodiscard]] std::int64_t attention_channels() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t hidden() const { return 4 * attention_channels(); }
};

// Views of one layer's parameters (or, the same shape, of their gradients).
template <typename T>
struct BlockWeights {
  T* ln1_weight;
  T* ln1_bias;
  T* qkv_weight;
  T* qkv_bias;
  T* out_weight;
  T* out_bias;
  T* ln2_weight;
  T* ln2_bias;
  T* up_weight;
  T* up_bias;
  T* down_weight;
  T* down_bias;

  // parameters[first .. first + 12) in the order of flat_layout(); unit: where the first one lies.
  static BlockWeights at(T* unit, const std::vector<Parameter>& parameters, std::size_t first);
};

// What forward saves for backward, per microbatch in flight.
template <typename T>
struct BlockSaved {
  T* x;  // [rows, C], the block's input
  T* ln1;
  T* mean1;
  T* rstd1;
  T* qkv;
  T* attention;
  T* lse;
  T* x2;
  T* ln2;
  T* mean2;
  T* rstd2;
  T* up;
  T* gelu;

  // Buffers for what a layer under this kind of recomputation keeps; null for the others.
  static BlockSaved allocate(const BlockShape& shape, sched::Recompute kind, Arena& arena);
  // The others, in which backward computes them again, shared by all layers of a rank.
  static BlockSaved allocate_shared(const BlockShape& shape, sched::Recompute kind, Arena& arena);
  // Points the buffers that a layer of this kind does not keep at those of `shared`.
  void borrow(const BlockSaved& shared, sched::Recompute kind);
};

// Scratch of a backward pass, shared by all layers of a rank.
template <typename T>
struct BlockScratch {
  T* d_ln;      // [rows, C]
  T* d_x;       // [rows, C]
  T* d_x2;      // [rows, C]
  T* d_hidden;  // [rows, hidden]
  T* d_qkv;     // [rows, 3 * attention_channels]
  T* d_attention;

  static BlockScratch allocate(const BlockShape& shape, Arena& arena);
};

// out: [rows, C]; must not be saved.x.
template <typename T>
void block_forward(const BlockShape& shape, const BlockWeights<const T>& w,
                   const BlockSaved<T>& saved, T* out, comm::Communicator* tensor,
                   kernels::Threads threads);

// Computes again what selective recomputation does not keep (the norms' outputs and the
// activation's), with the bits that block_forward gave.
template <typename T>
void block_recompute(const BlockShape& shape, const BlockWeights<const T>& w,
                     const BlockSaved<T>& saved, kernels::Threads threads);

// Backward comes in two halves, so that a pipeline may run the second one later.
// d_out: [rows, C], the gradient of out; not changed.
//
// The first half finds the gradients of activations, accumulates those of the norms' parameters,
// and trades buffers that it needs no more against scratch that now holds gradients: afterwards
// saved.x, x2, qkv and up hold the gradients of what they held. The block's input gradient is
// saved.x.
template <typename T>
void block_backward_input(const BlockShape& shape, const BlockWeights<const T>& w,
                          BlockSaved<T>& saved, const BlockWeights<T>& d_w,
                          BlockScratch<T>& scratch, const T* d_out, comm::Communicator* tensor,
                          kernels::Threads threads);

// The second half: accumulates the gradients of the four matrices and their biases. No sums over
// ranks.
template <typename T>
void block_backward_weight(const BlockShape& shape, const BlockSaved<T>& saved, const T* d_out,
                           const BlockWeights<T>& d_w, kernels::Threads threads);

}  // namespace sinew::model
