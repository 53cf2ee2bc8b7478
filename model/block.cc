#include "model/block.h"

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
BlockWeights<T> BlockWeights<T>::at(T* flat, const std::vector<Parameter>& parameters,
                                    std::size_t first) {
  const auto view = [&](std::size_t i) { return flat + parameters[first + i].offset; };
  CHECK_LE(first + 12, parameters.size());
  return {view(0), view(1), view(2), view(3), view(4),  view(5),
          view(6), view(7), view(8), view(9), view(10), view(11)};
}

template <typename T>
BlockSaved<T> BlockSaved<T>::allocate(const BlockShape& s, Arena& arena) {
  const std::int64_t rows = s.rows();
  const std::int64_t c = s.channels;
  const std::int64_t width = s.attention_channels();
  BlockSaved saved{};
  saved.ln1 = arena.allocate<T>(rows * c);
  saved.mean1 = arena.allocate<T>(rows);
  saved.rstd1 = arena.allocate<T>(rows);
  saved.qkv = arena.allocate<T>(rows * 3 * width);
  saved.attention = arena.allocate<T>(rows * width);
  saved.lse = arena.allocate<T>(rows * s.heads);
  saved.x2 = arena.allocate<T>(rows * c);
  saved.ln2 = arena.allocate<T>(rows * c);
  saved.mean2 = arena.allocate<T>(rows);
  saved.rstd2 = arena.allocate<T>(rows);
  saved.up = arena.allocate<T>(rows * s.hidden());
  saved.gelu = arena.allocate<T>(rows * s.hidden());
  return saved;
}

template <typename T>
std::int64_t BlockSaved<T>::count(const BlockShape& s) {
  return s.rows() * (3 * s.channels + 4 * s.attention_channels() + s.heads + 2 * s.hidden() + 4);
}

template <typename T>
BlockScratch<T> BlockScratch<T>::allocate(const BlockShape& s, Arena& arena) {
  return {arena.allocate<T>(s.rows() * s.channels), arena.allocate<T>(s.rows() * s.hidden()),
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

namespace {

// d becomes the gradient of x2: the residual's plus what comes back through the MLP.
template <typename T>
void mlp_backward(const BlockShape& s, const BlockWeights<const T>& w, const BlockSaved<T>& saved,
                  const BlockWeights<T>& d_w, const BlockScratch<T>& scratch, T* d,
                  comm::Communicator* tensor, kernels::Threads threads) {
  const std::int64_t rows = s.rows();
  const std::int64_t c = s.channels;
  const LinearShape down{rows, s.hidden(), c};
  const LinearShape up{rows, c, s.hidden()};
  linear_backward_input<T>(down, d, w.down_weight, scratch.d_hidden, threads);
  linear_backward_weight<T>(down, saved.gelu, d, d_w.down_weight, threads);
  kernels::bias_backward<T>(d, d_w.down_bias, rows, c, threads);
  kernels::gelu_backward<T>(scratch.d_hidden, saved.up, scratch.d_hidden, rows * s.hidden(),
                            threads);
  linear_backward_input<T>(up, scratch.d_hidden, w.up_weight, scratch.d_ln, threads);
  linear_backward_weight<T>(up, saved.ln2, scratch.d_hidden, d_w.up_weight, threads);
  kernels::bias_backward<T>(scratch.d_hidden, d_w.up_bias, rows, s.hidden(), threads);
  sum_over(tensor, scratch.d_ln, rows * c);
  kernels::layer_norm_backward<T>({rows, c}, scratch.d_ln, saved.x2, w.ln2_weight, saved.mean2,
                                  saved.rstd2, kernels::Write::kAccumulate, d, d_w.ln2_weight,
                                  d_w.ln2_bias, threads);
}

// d becomes the gradient of x.
template <typename T>
void attention_half_backward(const BlockShape& s, const BlockWeights<const T>& w,
                             const BlockSaved<T>& saved, const BlockWeights<T>& d_w,
                             const BlockScratch<T>& scratch, T* d, comm::Communicator* tensor,
                             kernels::Threads threads) {
  const std::int64_t rows = s.rows();
  const std::int64_t c = s.channels;
  const std::int64_t width = s.attention_channels();
  const LinearShape out{rows, width, c};
  const LinearShape in{rows, c, 3 * width};
  const T* qkv = saved.qkv;
  linear_backward_input<T>(out, d, w.out_weight, scratch.d_attention, threads);
  linear_backward_weight<T>(out, saved.attention, d, d_w.out_weight, threads);
  kernels::bias_backward<T>(d, d_w.out_bias, rows, c, threads);
  kernels::attention_backward<T>(attention_shape<T>(s), third(qkv, 0, s), third(qkv, 1, s),
                                 third(qkv, 2, s), heads<const T>(saved.attention, s), saved.lse,
                                 heads<const T>(scratch.d_attention, s), third(scratch.d_qkv, 0, s),
                                 third(scratch.d_qkv, 1, s), third(scratch.d_qkv, 2, s), threads);
  linear_backward_input<T>(in, scratch.d_qkv, w.qkv_weight, scratch.d_ln, threads);
  linear_backward_weight<T>(in, saved.ln1, scratch.d_qkv, d_w.qkv_weight, threads);
  kernels::bias_backward<T>(scratch.d_qkv, d_w.qkv_bias, rows, 3 * width, threads);
  sum_over(tensor, scratch.d_ln, rows * c);
  kernels::layer_norm_backward<T>({rows, c}, scratch.d_ln, saved.x, w.ln1_weight, saved.mean1,
                                  saved.rstd1, kernels::Write::kAccumulate, d, d_w.ln1_weight,
                                  d_w.ln1_bias, threads);
}

}  // namespace

template <typename T>
void block_backward(const BlockShape& shape, const BlockWeights<const T>& w,
                    const BlockSaved<T>& saved, const BlockWeights<T>& d_w,
                    const BlockScratch<T>& scratch, T* d, comm::Communicator* tensor,
                    kernels::Threads threads) {
  mlp_backward(shape, w, saved, d_w, scratch, d, tensor, threads);
  attention_half_backward(shape, w, saved, d_w, scratch, d, tensor, threads);
}

#define SINEW_INSTANTIATE(T)                                                                       \
  template struct BlockWeights<T>;                                                                 \
  template struct BlockWeights<const T>;                                                           \
  template struct BlockSaved<T>;                                                                   \
  template struct BlockScratch<T>;                                                                 \
  template void block_forward<T>(const BlockShape&, const BlockWeights<const T>&,                  \
                                 const BlockSaved<T>&, T*, comm::Communicator*, kernels::Threads); \
  template void block_backward<T>(                                                                 \
      const BlockShape&, const BlockWeights<const T>&, const BlockSaved<T>&,                       \
      const BlockWeights<T>&, const BlockScratch<T>&, T*, comm::Communicator*, kernels::Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
#undef SINEW_INSTANTIATE

}  // namespace sinew::model
