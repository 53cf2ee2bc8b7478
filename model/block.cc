#include "model/block.h"

#include <algorithm>
#include <utility>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "model/linear.h"
#include "model/parallel.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {

template <typename T>
kernels::AttentionShape attention_shape(const BlockShape& s) {
  return {.batch = s.batch,
          .time = s.time,
          .heads = s.heads,
          .kv_heads = s.heads,
          .head_dim = s.head_dim};
}

// The three views into a fused [B, T, 3, heads * head_dim] matrix.
template <typename T>
kernels::HeadView<T> third(T* qkv, int which, const BlockShape& s) {
  const std::int64_t width = s.attention_channels();
  return {qkv + which * width, s.time * 3 * width, 3 * width};
}

template <typename T>
kernels::HeadView<T> heads(T* data, const BlockShape& s) {
  const std::int64_t width = s.attention_channels();
  return {data, s.time * width, width};
}

// y = sum over tensor ranks of y, plus the bias (once) and the residual.
template <typename T>
void finish_row_parallel(const BlockShape& s, T* y, const T* bias, const T* residual,
                         comm::Communicator* tensor, kernels::Threads threads) {
  sum_over(tensor, y, s.rows() * s.channels);
  kernels::add_bias(y, bias, s.rows(), s.channels, threads);
  kernels::add(y, residual, s.rows() * s.channels, threads);
}

}  // namespace

template <typename T>
BlockWeights<T> BlockWeights<T>::at(T* unit, const std::vector<Parameter>& parameters,
                                    std::size_t first) {
  CHECK_LE(first + 12, parameters.size());
  const std::int64_t begin = parameters[first].offset;
  const auto view = [&](std::size_t i) { return unit + (parameters[first + i].offset - begin); };
  return {view(0), view(1), view(2), view(3), view(4),  view(5),
          view(6), view(7), view(8), view(9), view(10), view(11)};
}

namespace {

// Whether a layer under this kind of recomputation keeps what backward can compute again from its
// input alone, and what it can without a product of matrices.
bool keeps_matrices(sched::Recompute kind) { return kind != sched::Recompute::kFull; }
bool keeps_elementwise(sched::Recompute kind) { return kind == sched::Recompute::kNone; }

// Allocates those of the two groups that are asked for.
template <typename T>
BlockSaved<T> allocate_groups(const BlockShape& s, bool matrices, bool elementwise, Arena& arena) {
  const std::int64_t rows = s.rows();
  const std::int64_t c = s.channels;
  const std::int64_t width = s.attention_channels();
  BlockSaved<T> saved{};
  if (matrices) {
    saved.mean1 = arena.allocate<T>(rows);
    saved.rstd1 = arena.allocate<T>(rows);
    saved.qkv = arena.allocate<T>(rows * 3 * width);
    saved.attention = arena.allocate<T>(rows * width);
    saved.lse = arena.allocate<T>(rows * s.heads);
    saved.x2 = arena.allocate<T>(rows * c);
    saved.mean2 = arena.allocate<T>(rows);
    saved.rstd2 = arena.allocate<T>(rows);
    saved.up = arena.allocate<T>(rows * s.hidden());
  }
  if (elementwise) {
    saved.ln1 = arena.allocate<T>(rows * c);
    saved.ln2 = arena.allocate<T>(rows * c);
    saved.gelu = arena.allocate<T>(rows * s.hidden());
  }
  return saved;
}

}  // namespace

template <typename T>
BlockSaved<T> BlockSaved<T>::allocate(const BlockShape& s, sched::Recompute kind, Arena& arena) {
  BlockSaved saved = allocate_groups<T>(s, keeps_matrices(kind), keeps_elementwise(kind), arena);
  saved.x = arena.allocate<T>(s.rows() * s.channels);
  return saved;
}

template <typename T>
BlockSaved<T> BlockSaved<T>::allocate_shared(const BlockShape& s, sched::Recompute kind,
                                             Arena& arena) {
  return allocate_groups<T>(s, !keeps_matrices(kind), !keeps_elementwise(kind), arena);
}

template <typename T>
void BlockSaved<T>::borrow(const BlockSaved& shared, sched::Recompute kind) {
  const BlockSaved own = *this;
  if (!keeps_matrices(kind)) {
    *this = shared;
    x = own.x;
  }
  if (!keeps_elementwise(kind)) {
    ln1 = shared.ln1;
    ln2 = shared.ln2;
    gelu = shared.gelu;
  }
}

template <typename T>
BlockScratch<T> BlockScratch<T>::allocate(const BlockShape& s, Arena& arena) {
  const std::int64_t boundary = s.rows() * s.channels;
  return {arena.allocate<T>(boundary),
          arena.allocate<T>(boundary),
          arena.allocate<T>(boundary),
          arena.allocate<T>(s.rows() * s.hidden()),
          arena.allocate<T>(s.rows() * 3 * s.attention_channels()),
          arena.allocate<T>(s.rows() * s.attention_channels())};
}

template <typename T>
void block_forward(const BlockShape& s, const BlockWeights<const T>& w, const BlockSaved<T>& saved,
                   T* out, comm::Communicator* tensor, kernels::Threads threads) {
  const std::int64_t rows = s.rows();
  const std::int64_t c = s.channels;
  const std::int64_t width = s.attention_channels();
  const auto epsilon = static_cast<T>(kNormEpsilon);

  kernels::layer_norm_forward<T>({rows, c}, saved.x, w.ln1_weight, w.ln1_bias, epsilon, saved.ln1,
                                 saved.mean1, saved.rstd1, threads);
  linear_forward({rows, c, 3 * width}, saved.ln1, w.qkv_weight, saved.qkv, threads);
  kernels::add_bias(saved.qkv, w.qkv_bias, rows, 3 * width, threads);
  const T* qkv = saved.qkv;
  kernels::attention_forward<T>(attention_shape<T>(s), third(qkv, 0, s), third(qkv, 1, s),
                                third(qkv, 2, s), heads(saved.attention, s), saved.lse, threads);
  linear_forward({rows, width, c}, saved.attention, w.out_weight, saved.x2, threads);
  finish_row_parallel<T>(s, saved.x2, w.out_bias, saved.x, tensor, threads);

  kernels::layer_norm_forward<T>({rows, c}, saved.x2, w.ln2_weight, w.ln2_bias, epsilon, saved.ln2,
                                 saved.mean2, saved.rstd2, threads);
  linear_forward({rows, c, s.hidden()}, saved.ln2, w.up_weight, saved.up, threads);
  kernels::add_bias(saved.up, w.up_bias, rows, s.hidden(), threads);
  kernels::gelu_forward<T>(saved.up, saved.gelu, rows * s.hidden(), threads);
  linear_forward({rows, s.hidden(), c}, saved.gelu, w.down_weight, out, threads);
  finish_row_parallel<T>(s, out, w.down_bias, saved.x2, tensor, threads);
}

template <typename T>
void block_recompute(const BlockShape& s, const BlockWeights<const T>& w,
                     const BlockSaved<T>& saved, kernels::Threads threads) {
  const kernels::NormShape norm{s.rows(), s.channels};
  const auto epsilon = static_cast<T>(kNormEpsilon);
  kernels::layer_norm_forward<T>(norm, saved.x, w.ln1_weight, w.ln1_bias, epsilon, saved.ln1,
                                 saved.mean1, saved.rstd1, threads);
  kernels::layer_norm_forward<T>(norm, saved.x2, w.ln2_weight, w.ln2_bias, epsilon, saved.ln2,
                                 saved.mean2, saved.rstd2, threads);
  kernels::gelu_forward<T>(saved.up, saved.gelu, s.rows() * s.hidden(), threads);
}

namespace {

// saved.up and saved.x2 become gradients: the residual's plus what comes back through the MLP.
template <typename T>
void mlp_backward_input(const BlockShape& s, const BlockWeights<const T>& w, BlockSaved<T>& saved,
                        const BlockWeights<T>& d_w, BlockScratch<T>& scratch, const T* d_out,
                        comm::Communicator* tensor, kernels::Threads threads) {
  const std::int64_t rows = s.rows();
  const std::int64_t c = s.channels;
  linear_backward_input<T>({rows, s.hidden(), c}, d_out, w.down_weight, scratch.d_hidden, threads);
  kernels::gelu_backward<T>(scratch.d_hidden, saved.up, scratch.d_hidden, rows * s.hidden(),
                            threads);
  std::swap(saved.up, scratch.d_hidden);
  linear_backward_input<T>({rows, c, s.hidden()}, saved.up, w.up_weight, scratch.d_ln, threads);
  sum_over(tensor, scratch.d_ln, rows * c);
  std::copy_n(d_out, rows * c, scratch.d_x2);
  kernels::layer_norm_backward<T>({rows, c}, scratch.d_ln, saved.x2, w.ln2_weight, saved.mean2,
                                  saved.rstd2, kernels::Write::kAccumulate, scratch.d_x2,
                                  d_w.ln2_weight, d_w.ln2_bias, threads);
  std::swap(saved.x2, scratch.d_x2);
}

// saved.qkv and saved.x become gradients, from that of x2.
template <typename T>
void attention_backward_input(const BlockShape& s, const BlockWeights<const T>& w,
                              BlockSaved<T>& saved, const BlockWeights<T>& d_w,
                              BlockScratch<T>& scratch, comm::Communicator* tensor,
                              kernels::Threads threads) {
  const std::int64_t rows = s.rows();
  const std::int64_t c = s.channels;
  const std::int64_t width = s.attention_channels();
  const T* d_x2 = saved.x2;
  const T* qkv = saved.qkv;
  linear_backward_input<T>({rows, width, c}, d_x2, w.out_weight, scratch.d_attention, threads);
  kernels::attention_backward<T>(attention_shape<T>(s), third(qkv, 0, s), third(qkv, 1, s),
                                 third(qkv, 2, s), heads<const T>(saved.attention, s), saved.lse,
                                 heads<const T>(scratch.d_attention, s), third(scratch.d_qkv, 0, s),
                                 third(scratch.d_qkv, 1, s), third(scratch.d_qkv, 2, s), threads);
  std::swap(saved.qkv, scratch.d_qkv);
  linear_backward_input<T>({rows, c, 3 * width}, saved.qkv, w.qkv_weight, scratch.d_ln, threads);
  sum_over(tensor, scratch.d_ln, rows * c);
  std::copy_n(d_x2, rows * c, scratch.d_x);
  kernels::layer_norm_backward<T>({rows, c}, scratch.d_ln, saved.x, w.ln1_weight, saved.mean1,
                                  saved.rstd1, kernels::Write::kAccumulate, scratch.d_x,
                                  d_w.ln1_weight, d_w.ln1_bias, threads);
  std::swap(saved.x, scratch.d_x);
}

// Of y = x w + b.
template <typename T>
void linear_gradients(const LinearShape& s, const T* x, const T* d_y, T* d_w, T* d_b,
                      kernels::Threads threads) {
  linear_backward_weight<T>(s, x, d_y, d_w, threads);
  kernels::bias_backward<T>(d_y, d_b, s.rows, s.out, threads);
}

}  // namespace

template <typename T>
void block_backward_input(const BlockShape& shape, const BlockWeights<const T>& w,
                          BlockSaved<T>& saved, const BlockWeights<T>& d_w,
                          BlockScratch<T>& scratch, const T* d_out, comm::Communicator* tensor,
                          kernels::Threads threads) {
  mlp_backward_input(shape, w, saved, d_w, scratch, d_out, tensor, threads);
  attention_backward_input(shape, w, saved, d_w, scratch, tensor, threads);
}

template <typename T>
void block_backward_weight(const BlockShape& s, const BlockSaved<T>& saved, const T* d_out,
                           const BlockWeights<T>& d_w, kernels::Threads threads) {
  const std::int64_t rows = s.rows();
  const std::int64_t c = s.channels;
  const std::int64_t width = s.attention_channels();
  linear_gradients<T>({rows, s.hidden(), c}, saved.gelu, d_out, d_w.down_weight, d_w.down_bias,
                      threads);
  linear_gradients<T>({rows, c, s.hidden()}, saved.ln2, saved.up, d_w.up_weight, d_w.up_bias,
                      threads);
  linear_gradients<T>({rows, width, c}, saved.attention, saved.x2, d_w.out_weight, d_w.out_bias,
                      threads);
  linear_gradients<T>({rows, c, 3 * width}, saved.ln1, saved.qkv, d_w.qkv_weight, d_w.qkv_bias,
                      threads);
}

#define SINEW_INSTANTIATE(T)                                                                       \
  template struct BlockWeights<T>;                                                                 \
  template struct BlockWeights<const T>;                                                           \
  template struct BlockSaved<T>;                                                                   \
  template struct BlockScratch<T>;                                                                 \
  template void block_forward<T>(const BlockShape&, const BlockWeights<const T>&,                  \
                                 const BlockSaved<T>&, T*, comm::Communicator*, kernels::Threads); \
  template void block_recompute<T>(const BlockShape&, const BlockWeights<const T>&,                \
                                   const BlockSaved<T>&, kernels::Threads);                        \
  template void block_backward_input<T>(const BlockShape&, const BlockWeights<const T>&,           \
                                        BlockSaved<T>&, const BlockWeights<T>&, BlockScratch<T>&,  \
                                        const T*, comm::Communicator*, kernels::Threads);          \
  template void block_backward_weight<T>(const BlockShape&, const BlockSaved<T>&, const T*,        \
                                         const BlockWeights<T>&, kernels::Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
#undef SINEW_INSTANTIATE

}  // namespace sinew::model
