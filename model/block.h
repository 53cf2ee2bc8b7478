// Block: one transformer layer, forward and backward, on one rank.
//
//   GPT-2   x2  = x  + attention(LN(x)) Wo + bo
//           out = x2 + gelu(LN(x2) Wf + bf) Wp + bp
//   Llama   x2  = x  + attention(RMS(x)) Wo              queries and keys turned by their positions
//           out = x2 + (silu(n Wg) * (n Wu)) Wd          n = RMS(x2)
//
// Tensor parallelism (Megatron-LM, Shoeybi et al. 2019): the first matrix of each half is cut by
// columns (heads, hidden units), the second by rows. Exactly two all-reduces of B T C elements
// forward and two backward per layer and microbatch; a row-parallel bias is added once, after the
// reduction.
//
// Sequence parallelism (Korthikanti et al. 2022): between the halves each tensor rank holds its
// share of the [B T] rows only, of norms, residuals and dropout. In the place of each all-reduce
// stand a reduce-scatter, after the half, and an all-gather, before the next. Of the gathered norms
// only the own rows are kept, so backward gathers them once more for the weights' gradients.
// Shares are of rows, not of positions: B T is a multiple of the tensor ranks.
//
// Row chunks: a product that comes before a reduce-scatter may be computed in k pieces, piece i the
// i-th part of every rank's rows, and each piece is on its way while the next is computed. Every
// element is the same sum, so no bit depends on k.
//
// Never does: own memory (the arenas do) or know about pipelines and data parallelism. T is float,
// double or bf16; statistics and gradients of weights are Wide<T>.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "kernels/element.h"
#include "kernels/threads.h"
#include "model/arena.h"
#include "model/attention.h"
#include "model/config.h"
#include "model/dropout_mask.h"
#include "model/layout.h"
#include "sched/plan/memory.h"

namespace sinew::model {

// Sizes of one microbatch on one rank.
struct BlockShape {
  bool llama = false;
  bool sequence_parallel = false;
  int tensor_world = 1;
  int row_chunks = 1;  // of a product whose rows are then shared out
  double norm_epsilon = 0;
  std::int64_t batch = 0;
  std::int64_t time = 0;  // positions on this context rank
  std::int64_t channels = 0;
  std::int64_t heads = 0;     // on this tensor rank
  std::int64_t kv_heads = 0;  // likewise
  std::int64_t head_dim = 0;
  std::int64_t hidden = 0;  // likewise

  BlockShape(const Config& config, std::int64_t batch_count, std::int64_t time_count,
             const TensorRank& tensor);
  // Between the two matrices of a half.
  [[nodiscard]] std::int64_t rows() const { return batch * time; }
  // Outside of them.
  [[nodiscard]] std::int64_t own_rows() const {
    return sequence_parallel ? rows() / tensor_world : rows();
  }
  [[nodiscard]] std::int64_t attention_channels() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t qkv_channels() const { return (heads + 2 * kv_heads) * head_dim; }
  // Columns of the MLP's first product: Llama's gate and up side by side.
  [[nodiscard]] std::int64_t up_channels() const { return llama ? 2 * hidden : hidden; }
  [[nodiscard]] kernels::AttentionShape attention_shape() const {
    return {batch, time, heads, kv_heads, head_dim};
  }
};

// Views of one layer's parameters (or, the same shape, of their gradients); null where the family
// has none. Llama's query, key and value matrices are one view, and so are gate and up.
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

  // parameters[first ...] in the order of flat_layout(); unit: where the first one lies.
  static BlockWeights at(T* unit, const std::vector<Parameter>& parameters, std::size_t first,
                         sched::Family family);
};

// What forward saves for backward, per microbatch in flight.
template <typename T>
struct BlockSaved {
  using W = kernels::Wide<T>;
  T* x;      // [own rows, C], the block's input
  T* ln1;    // [own rows, C]
  W* mean1;  // null for Llama
  W* rstd1;
  T* qkv;  // as Attention leaves it; Llama's queries and keys turned
  T* attention;
  W* lse;
  T* x2;   // [own rows, C]
  T* ln2;  // [own rows, C]
  W* mean2;
  W* rstd2;
  T* up;    // [rows, up_channels]
  T* gelu;  // [rows, hidden], what comes out of the activation

  // Buffers for what a layer under this kind of recomputation keeps; null for the others.
  static BlockSaved allocate(const BlockShape& shape, sched::Recompute kind, Arena& arena);
  // The others, in which backward computes them again, shared by all layers of a rank.
  static BlockSaved allocate_shared(const BlockShape& shape, sched::Recompute kind, Arena& arena);
  // Points the buffers that a layer of this kind does not keep at those of `shared`.
  void borrow(const BlockSaved& shared, sched::Recompute kind);
};

// Scratch shared by all layers of a rank.
template <typename T>
struct BlockScratch {
  T* d_ln;      // [own rows, C]
  T* d_x;       // [own rows, C]
  T* d_x2;      // [own rows, C]
  T* d_hidden;  // [rows, hidden]
  T* d_qkv;     // [rows, qkv_channels]
  T* d_attention;
  T* d_branch;  // [own rows, C] with dropout: the gradient behind the mask
  // Sequence parallelism: [rows, C] what is gathered or not yet scattered, and the gathered
  // gradients of the two halves' outputs.
  T* whole;
  T* d_out_whole;
  T* d_x2_whole;

  static BlockScratch allocate(const BlockShape& shape, bool dropout, Arena& arena);
};

template <typename T>
class Units;

// What a layer needs beside its parameters and buffers.
template <typename T>
struct BlockContext {
  comm::Communicator* tensor = nullptr;  // null: one tensor rank
  Attention<T>* attention = nullptr;
  const kernels::Wide<T>* cosine = nullptr;  // Llama: [time, head_dim / 2], of global positions
  const kernels::Wide<T>* sine = nullptr;
  DropoutMask dropout;  // of this microbatch; inactive in evaluation
  std::int64_t layer = 0;
  kernels::Threads threads;
  Units<T>* units = nullptr;  // whose movements go on between this layer's products; null: none
};

// out: [own rows, C]; must not be saved.x.
template <typename T>
void block_forward(const BlockShape& shape, const BlockWeights<const T>& w,
                   const BlockSaved<T>& saved, T* out, const BlockScratch<T>& scratch,
                   const BlockContext<T>& context);

// Computes again what selective recomputation does not keep (the norms' outputs and the
// activation's), with the bits that block_forward gave.
template <typename T>
void block_recompute(const BlockShape& shape, const BlockWeights<const T>& w,
                     const BlockSaved<T>& saved, kernels::Threads threads);

// Backward comes in two halves, so that a pipeline may run the second one later; not so under
// sequence parallelism, where the second half reads what the first one gathered in scratch.
// d_out: [own rows, C], the gradient of out; not changed.
//
// The first half finds the gradients of activations, accumulates those of the norms' parameters,
// and trades buffers that it needs no more against scratch that now holds gradients: afterwards
// saved.x, x2, qkv and up hold the gradients of what they held. The block's input gradient is
// saved.x.
template <typename T>
void block_backward_input(const BlockShape& shape, const BlockWeights<const T>& w,
                          BlockSaved<T>& saved, const BlockWeights<kernels::Wide<T>>& d_w,
                          BlockScratch<T>& scratch, const T* d_out, const BlockContext<T>& context);

// The second half: accumulates the gradients of the matrices and their biases. No sums over ranks;
// under sequence parallelism two all-gathers.
template <typename T>
void block_backward_weight(const BlockShape& shape, const BlockSaved<T>& saved, const T* d_out,
                           const BlockWeights<kernels::Wide<T>>& d_w,
                           const BlockScratch<T>& scratch, const BlockContext<T>& context);

}  // namespace sinew::model
