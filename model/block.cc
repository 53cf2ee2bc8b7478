#include "model/block.h"

#include <array>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "model/linear.h"
#include "model/norm.h"
#include "model/parallel.h"
#include "model/units.h"
#include "sched/plan/run_shape.h"

namespace sinew::model {

namespace {

// The four products of a layer.
LinearShape qkv_product(const BlockShape& s) {
  return {s.rows(), s.channels, s.qkv_channels(), s.llama};
}
LinearShape out_product(const BlockShape& s) {
  return {s.rows(), s.attention_channels(), s.channels, s.llama};
}
LinearShape up_product(const BlockShape& s) {
  return {s.rows(), s.channels, s.up_channels(), s.llama};
}
LinearShape down_product(const BlockShape& s) { return {s.rows(), s.hidden, s.channels, s.llama}; }

kernels::NormShape norm_shape(const BlockShape& s) { return {s.own_rows(), s.channels}; }

// What moves for other layers moves only while this rank looks at it: often, so that a message of
// several parts arrives within a layer.
template <typename T>
void progress(const BlockContext<T>& context) {
  if (context.units != nullptr) context.units->progress();
}

// All rows, of which each tensor rank has its own: `own` itself where it has all.
template <typename T>
const T* gather_rows(const BlockShape& s, const T* own, T* whole, comm::Communicator* tensor) {
  if (!s.sequence_parallel) return own;
  gather_over<T>(tensor, own, whole, s.own_rows() * s.channels);
  return whole;
}

// own = this rank's rows of the sum over the tensor ranks of a product, [rows, C], of which
// product(first, count, y) computes this rank's part, rows [first, + count).
template <typename T, typename Product>
void sum_of_products(const BlockShape& s, T* own, const BlockScratch<T>& scratch,
                     const BlockContext<T>& context, Product&& product) {
  if (!s.sequence_parallel) {
    product(0, s.rows(), own);
    sum_over(context.tensor, own, s.rows() * s.channels);
    return;
  }
  if (s.row_chunks == 1) {
    product(0, s.rows(), scratch.whole);
    scatter_sum_over<T>(context.tensor, scratch.whole, own, s.own_rows() * s.channels);
    return;
  }
  // scratch.whole: [chunks, ranks, count, C]
  const std::int64_t count = s.own_rows() / s.row_chunks;
  const std::int64_t piece = count * s.channels;
  std::array<comm::Request, sched::kRowChunksMost> sums;
  const auto progress = [&](int started) {
    for (int i = 0; i < started; ++i) {
      if (sums[static_cast<std::size_t>(i)].pending())
        static_cast<void>(sums[static_cast<std::size_t>(i)].test());
    }
  };
  for (int chunk = 0; chunk < s.row_chunks; ++chunk) {
    T* parts = scratch.whole + chunk * s.tensor_world * piece;
    for (int rank = 0; rank < s.tensor_world; ++rank) {
      product(rank * s.own_rows() + chunk * count, count, parts + rank * piece);
      progress(chunk);
    }
    sums[static_cast<std::size_t>(chunk)] = context.tensor->start_reduce_scatter(
        parts, own + chunk * piece, piece, dtype_of_v<T>, ReduceOp::kSum, {.algorithm = "direct"});
  }
  for (comm::Request& sum : sums) {
    if (sum.pending()) sum.wait();
  }
}

LinearShape of_rows(LinearShape product, std::int64_t rows) {
  product.rows = rows;
  return product;
}

template <typename T>
void add_bias_if_any(T* y, const T* bias, std::int64_t rows, std::int64_t channels,
                     kernels::Threads threads) {
  if (bias != nullptr) kernels::add_bias<T>(y, bias, rows, channels, threads);
}

// y = residual + dropout(x w + b), x: [rows, in], y: [own rows, C].
template <typename T>
void row_parallel(const BlockShape& s, const LinearShape& product, const T* x, const T* w,
                  const T* bias, const T* residual, DropoutPlace place, T* y,
                  const BlockScratch<T>& scratch, const BlockContext<T>& context) {
  sum_of_products<T>(s, y, scratch, context, [&](std::int64_t first, std::int64_t rows, T* part) {
    linear_forward<T>(of_rows(product, rows), x + first * product.in, w, part, context.threads);
  });
  progress(context);
  add_bias_if_any<T>(y, bias, s.own_rows(), s.channels, context.threads);
  if (context.dropout.active()) {
    context.dropout.at(DropoutMask::stream_of(context.layer, place))
        .apply(static_cast<const T*>(y), y, s.channels, context.threads);
  }
  kernels::add<T>(y, residual, s.own_rows() * s.channels, context.threads);
}

// Queries and keys of a row follow each other: one call turns both.
template <typename T>
kernels::HeadView<T> turned_heads(const BlockShape& s, T* qkv) {
  return {qkv, s.time * s.qkv_channels(), s.qkv_channels()};
}
kernels::RopeShape rope_shape(const BlockShape& s) {
  return {s.batch, s.time, s.heads + s.kv_heads, s.head_dim};
}

template <typename T>
void activation_forward(const BlockShape& s, const BlockSaved<T>& saved, kernels::Threads threads) {
  if (s.llama) {
    kernels::swiglu_forward<T>({s.rows(), s.hidden, 2 * s.hidden}, saved.up, saved.up + s.hidden,
                               saved.gelu, threads);
  } else {
    kernels::gelu_forward<T>(saved.up, saved.gelu, s.rows() * s.hidden, threads);
  }
}

// saved.up becomes its own gradient, from that of the activation's output in scratch.d_hidden.
template <typename T>
void activation_backward(const BlockShape& s, BlockSaved<T>& saved, BlockScratch<T>& scratch,
                         kernels::Threads threads) {
  if (s.llama) {
    T* gate = saved.up;
    T* up = saved.up + s.hidden;
    kernels::swiglu_backward<T>({s.rows(), s.hidden, 2 * s.hidden}, scratch.d_hidden, gate, up,
                                gate, up, threads);
    return;
  }
  kernels::gelu_backward<T>(scratch.d_hidden, saved.up, scratch.d_hidden, s.rows() * s.hidden,
                            threads);
  std::swap(saved.up, scratch.d_hidden);
}

}  // namespace

template <typename T>
void block_forward(const BlockShape& s, const BlockWeights<const T>& w, const BlockSaved<T>& saved,
                   T* out, const BlockScratch<T>& scratch, const BlockContext<T>& context) {
  const kernels::Threads threads = context.threads;
  norm_forward<T>(norm_shape(s), saved.x, {w.ln1_weight, w.ln1_bias}, s.norm_epsilon, saved.ln1,
                  {saved.mean1, saved.rstd1}, threads);
  const T* ln1 = gather_rows<T>(s, saved.ln1, scratch.whole, context.tensor);
  linear_forward<T>(qkv_product(s), ln1, w.qkv_weight, saved.qkv, threads);
  progress(context);
  add_bias_if_any<T>(saved.qkv, w.qkv_bias, s.rows(), s.qkv_channels(), threads);
  if (s.llama) {
    kernels::rope_forward<T>(rope_shape(s), turned_heads(s, saved.qkv), context.cosine,
                             context.sine, threads);
  }
  context.attention->forward(saved.qkv, saved.attention, saved.lse, threads);
  progress(context);
  row_parallel<T>(s, out_product(s), saved.attention, w.out_weight, w.out_bias, saved.x,
                  DropoutPlace::kAttention, saved.x2, scratch, context);

  norm_forward<T>(norm_shape(s), saved.x2, {w.ln2_weight, w.ln2_bias}, s.norm_epsilon, saved.ln2,
                  {saved.mean2, saved.rstd2}, threads);
  const T* ln2 = gather_rows<T>(s, saved.ln2, scratch.whole, context.tensor);
  linear_forward<T>(up_product(s), ln2, w.up_weight, saved.up, threads);
  progress(context);
  add_bias_if_any<T>(saved.up, w.up_bias, s.rows(), s.up_channels(), threads);
  activation_forward(s, saved, threads);
  progress(context);
  row_parallel<T>(s, down_product(s), saved.gelu, w.down_weight, w.down_bias, saved.x2,
                  DropoutPlace::kMlp, out, scratch, context);
}

template <typename T>
void block_recompute(const BlockShape& s, const BlockWeights<const T>& w,
                     const BlockSaved<T>& saved, kernels::Threads threads) {
  norm_forward<T>(norm_shape(s), saved.x, {w.ln1_weight, w.ln1_bias}, s.norm_epsilon, saved.ln1,
                  {saved.mean1, saved.rstd1}, threads);
  norm_forward<T>(norm_shape(s), saved.x2, {w.ln2_weight, w.ln2_bias}, s.norm_epsilon, saved.ln2,
                  {saved.mean2, saved.rstd2}, threads);
  activation_forward(s, saved, threads);
}

namespace {

// The gradient that comes to a half's second product: behind the mask, and of all rows (gathered
// into `whole` under sequence parallelism).
template <typename T>
const T* product_gradient(const BlockShape& s, const T* d_y, DropoutPlace place, T* whole,
                          const BlockScratch<T>& scratch, const BlockContext<T>& context) {
  if (context.dropout.active()) {
    context.dropout.at(DropoutMask::stream_of(context.layer, place))
        .apply(d_y, scratch.d_branch, s.channels, context.threads);
    d_y = scratch.d_branch;
  }
  return gather_rows<T>(s, d_y, whole, context.tensor);
}

// scratch.d_ln = the gradient of a norm's output, from that of the first product's.
template <typename T>
void norm_output_gradient(const BlockShape& s, const LinearShape& product, const T* d_y, const T* w,
                          const BlockScratch<T>& scratch, const BlockContext<T>& context) {
  sum_of_products<T>(s, scratch.d_ln, scratch, context,
                     [&](std::int64_t first, std::int64_t rows, T* part) {
                       linear_backward_input<T>(of_rows(product, rows), d_y + first * product.out,
                                                w, part, context.threads);
                     });
  progress(context);
}

// saved.up and saved.x2 become gradients: the residual's plus what comes back through the MLP.
template <typename T>
void mlp_backward_input(const BlockShape& s, const BlockWeights<const T>& w, BlockSaved<T>& saved,
                        const BlockWeights<kernels::Wide<T>>& d_w, BlockScratch<T>& scratch,
                        const T* d_out, const BlockContext<T>& context) {
  const T* d_product =
      product_gradient(s, d_out, DropoutPlace::kMlp, scratch.d_out_whole, scratch, context);
  linear_backward_input<T>(down_product(s), d_product, w.down_weight, scratch.d_hidden,
                           context.threads);
  progress(context);
  activation_backward(s, saved, scratch, context.threads);
  progress(context);
  norm_output_gradient<T>(s, up_product(s), saved.up, w.up_weight, scratch, context);
  kernels::copy<T>(scratch.d_x2, d_out, s.own_rows() * s.channels, context.threads);
  norm_backward<T>(norm_shape(s), scratch.d_ln, saved.x2, {w.ln2_weight, w.ln2_bias},
                   {saved.mean2, saved.rstd2}, kernels::Write::kAccumulate, scratch.d_x2,
                   {d_w.ln2_weight, d_w.ln2_bias}, context.threads);
  std::swap(saved.x2, scratch.d_x2);
}

// saved.qkv and saved.x become gradients, from that of x2.
template <typename T>
void attention_backward_input(const BlockShape& s, const BlockWeights<const T>& w,
                              BlockSaved<T>& saved, const BlockWeights<kernels::Wide<T>>& d_w,
                              BlockScratch<T>& scratch, const BlockContext<T>& context) {
  const T* d_x2 = saved.x2;
  const T* d_product =
      product_gradient(s, d_x2, DropoutPlace::kAttention, scratch.d_x2_whole, scratch, context);
  linear_backward_input<T>(out_product(s), d_product, w.out_weight, scratch.d_attention,
                           context.threads);
  progress(context);
  context.attention->backward(saved.qkv, saved.attention, saved.lse, scratch.d_attention,
                              scratch.d_qkv, context.threads);
  progress(context);
  if (s.llama) {
    kernels::rope_backward<T>(rope_shape(s), turned_heads(s, scratch.d_qkv), context.cosine,
                              context.sine, context.threads);
  }
  std::swap(saved.qkv, scratch.d_qkv);
  norm_output_gradient<T>(s, qkv_product(s), saved.qkv, w.qkv_weight, scratch, context);
  kernels::copy<T>(scratch.d_x, d_x2, s.own_rows() * s.channels, context.threads);
  norm_backward<T>(norm_shape(s), scratch.d_ln, saved.x, {w.ln1_weight, w.ln1_bias},
                   {saved.mean1, saved.rstd1}, kernels::Write::kAccumulate, scratch.d_x,
                   {d_w.ln1_weight, d_w.ln1_bias}, context.threads);
  std::swap(saved.x, scratch.d_x);
}

// Of y = x w + b.
template <typename T>
void linear_gradients(const LinearShape& s, const T* x, const T* d_y, kernels::Wide<T>* d_w,
                      kernels::Wide<T>* d_b, kernels::Threads threads) {
  linear_backward_weight<T>(s, x, d_y, d_w, threads);
  if (d_b != nullptr) kernels::bias_backward<T>(d_y, d_b, s.rows, s.out, threads);
}

}  // namespace

template <typename T>
void block_backward_input(const BlockShape& shape, const BlockWeights<const T>& w,
                          BlockSaved<T>& saved, const BlockWeights<kernels::Wide<T>>& d_w,
                          BlockScratch<T>& scratch, const T* d_out,
                          const BlockContext<T>& context) {
  mlp_backward_input(shape, w, saved, d_w, scratch, d_out, context);
  attention_backward_input(shape, w, saved, d_w, scratch, context);
}

template <typename T>
void block_backward_weight(const BlockShape& s, const BlockSaved<T>& saved, const T* d_out,
                           const BlockWeights<kernels::Wide<T>>& d_w,
                           const BlockScratch<T>& scratch, const BlockContext<T>& context) {
  // Without sequence parallelism the gradient behind a mask is made again; with it, it was gathered
  // and is still there.
  const auto d_product = [&](const T* d_y, DropoutPlace place, const T* gathered) {
    return s.sequence_parallel ? gathered
                               : product_gradient<T>(s, d_y, place, nullptr, scratch, context);
  };
  const kernels::Threads threads = context.threads;
  linear_gradients<T>(down_product(s), saved.gelu,
                      d_product(d_out, DropoutPlace::kMlp, scratch.d_out_whole), d_w.down_weight,
                      d_w.down_bias, threads);
  progress(context);
  linear_gradients<T>(up_product(s), gather_rows<T>(s, saved.ln2, scratch.whole, context.tensor),
                      saved.up, d_w.up_weight, d_w.up_bias, threads);
  progress(context);
  linear_gradients<T>(out_product(s), saved.attention,
                      d_product(saved.x2, DropoutPlace::kAttention, scratch.d_x2_whole),
                      d_w.out_weight, d_w.out_bias, threads);
  progress(context);
  linear_gradients<T>(qkv_product(s), gather_rows<T>(s, saved.ln1, scratch.whole, context.tensor),
                      saved.qkv, d_w.qkv_weight, d_w.qkv_bias, threads);
}

#define SINEW_INSTANTIATE(T)                                                                   \
  template void block_forward<T>(const BlockShape&, const BlockWeights<const T>&,              \
                                 const BlockSaved<T>&, T*, const BlockScratch<T>&,             \
                                 const BlockContext<T>&);                                      \
  template void block_recompute<T>(const BlockShape&, const BlockWeights<const T>&,            \
                                   const BlockSaved<T>&, kernels::Threads);                    \
  template void block_backward_input<T>(const BlockShape&, const BlockWeights<const T>&,       \
                                        BlockSaved<T>&, const BlockWeights<kernels::Wide<T>>&, \
                                        BlockScratch<T>&, const T*, const BlockContext<T>&);   \
  template void block_backward_weight<T>(const BlockShape&, const BlockSaved<T>&, const T*,    \
                                         const BlockWeights<kernels::Wide<T>>&,                \
                                         const BlockScratch<T>&, const BlockContext<T>&);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::model
