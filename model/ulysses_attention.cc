#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/convert.h"
#include "kernels/elementwise.h"
#include "model/attention.h"
#include "model/parallel.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {

// Names: "shared" arrays hold this rank's positions of all heads, "whole" arrays all positions of
// this rank's heads.
template <typename T>
class UlyssesAttention final : public Attention<T> {
  using W = kernels::Wide<T>;

 public:
  UlyssesAttention(const kernels::AttentionShape& shape, comm::Communicator& context,
                   Arena& workspace)
      : shape_(shape), whole_(shape), context_(context), ranks_(context.world()) {
    CHECK_EQ(shape.heads % ranks_, 0);
    CHECK_EQ(shape.kv_heads % ranks_, 0);
    whole_.time *= ranks_;
    whole_.heads /= ranks_;
    whole_.kv_heads /= ranks_;
    const std::int64_t widest = std::max((whole_.heads + 2 * whole_.kv_heads) * shape.head_dim,
                                         whole_.heads * (shape.head_dim + kSumWidth));
    sent_ = workspace.allocate<T>(rows() * widest * ranks_);
    arrived_ = workspace.allocate<T>(rows() * widest * ranks_);
    heads_whole_ = workspace.allocate<T>(rows() * shape.heads * shape.head_dim);
    d_qkv_whole_ = workspace.allocate<W>(rows() * qkv_width(shape));
    if constexpr (!kWide) d_qkv_narrow_ = workspace.allocate<T>(rows() * qkv_width(shape));
    row_dot_ = workspace.allocate<W>(rows() * shape.heads);
    row_dot_whole_ = workspace.allocate<W>(rows() * shape.heads);
  }

  void forward(T* qkv, T* attention, W* lse, kernels::Threads threads) override {
    pack_qkv(qkv, threads);
    exchange(rows() * qkv_width(whole_), threads);
    unpack_whole(arrived_, qkv, qkv_width(whole_), threads);
    const T* in = qkv;
    kernels::attention_forward<T>(whole_, queries(in), keys(in), values(in), heads(heads_whole_),
                                  lse, threads);
    pack_whole(heads_whole_, head_width(whole_), threads);
    exchange(rows() * head_width(whole_), threads);
    for (int peer = 0; peer < ranks_; ++peer)
      copy_columns(block(arrived_, peer, rows() * head_width(whole_)), head_width(whole_),
                   attention + peer * head_width(whole_), head_width(shape_), head_width(whole_),
                   threads);
  }

  void backward(const T* qkv, const T* attention, const W* lse, const T* d_attention, T* d_qkv,
                kernels::Threads threads) override {
    send_gradients(attention, d_attention, threads);
    kernels::clear<W>(d_qkv_whole_, rows() * qkv_width(shape_), threads);
    const T* d_heads = heads_whole_;
    kernels::attention_backward_partial<T>(whole_, {.time = whole_.time, .diagonal = 0},
                                           queries(qkv), keys(qkv), values(qkv), lse,
                                           row_dot_whole_, heads(d_heads), queries(d_qkv_whole_),
                                           keys(d_qkv_whole_), values(d_qkv_whole_), threads);
    pack_whole(narrowed_gradients(threads), qkv_width(whole_), threads);
    exchange(rows() * qkv_width(whole_), threads);
    for (int peer = 0; peer < ranks_; ++peer) unpack_qkv(peer, d_qkv, threads);
  }

 private:
  static constexpr bool kWide = std::is_same_v<T, W>;
  // Elements of T that a row sum fills in a message.
  static constexpr std::int64_t kSumWidth = sizeof(W) / sizeof(T);

  const T* narrowed_gradients(kernels::Threads threads) const {
    if constexpr (kWide) {
      return d_qkv_whole_;
    } else {
      kernels::convert(static_cast<const W*>(d_qkv_whole_), d_qkv_narrow_,
                       rows() * qkv_width(shape_), threads);
      return d_qkv_narrow_;
    }
  }

  static std::int64_t qkv_width(const kernels::AttentionShape& s) {
    return (s.heads + 2 * s.kv_heads) * s.head_dim;
  }
  static std::int64_t head_width(const kernels::AttentionShape& s) { return s.heads * s.head_dim; }
  std::int64_t rows() const { return shape_.batch * shape_.time; }
  // What goes to or came from a peer, of so many elements.
  T* block(T* buffer, int peer, std::int64_t count) const { return buffer + peer * count; }

  // Views of whole arrays.
  template <typename U>
  kernels::HeadView<U> view(U* data, std::int64_t width) const {
    return {data, whole_.time * width, width};
  }
  template <typename U>
  kernels::HeadView<U> queries(U* qkv) const {
    return view(qkv, qkv_width(whole_));
  }
  template <typename U>
  kernels::HeadView<U> keys(U* qkv) const {
    return view(qkv + head_width(whole_), qkv_width(whole_));
  }
  template <typename U>
  kernels::HeadView<U> values(U* qkv) const {
    return view(qkv + (whole_.heads + whole_.kv_heads) * whole_.head_dim, qkv_width(whole_));
  }
  template <typename U>
  kernels::HeadView<U> heads(U* data) const {
    return view(data, head_width(whole_));
  }

  // Calls body(column in a shared qkv, column in a whole one, columns) for queries, keys, values of
  // the heads that `peer` computes.
  template <typename Body>
  void for_each_part(int peer, Body&& body) const {
    const std::int64_t d = shape_.head_dim;
    body(peer * whole_.heads * d, 0, whole_.heads * d);
    for (const std::int64_t pair : {0, 1}) {
      body((shape_.heads + pair * shape_.kv_heads + peer * whole_.kv_heads) * d,
           (whole_.heads + pair * whole_.kv_heads) * d, whole_.kv_heads * d);
    }
  }
  // `width` columns of this rank's rows, between matrices of other widths.
  void copy_columns(const T* source, std::int64_t source_width, T* target,
                    std::int64_t target_width, std::int64_t width, kernels::Threads threads) const {
    kernels::copy_rows<T>(target, source,
                          {.rows = rows(),
                           .width = width,
                           .target_stride = target_width,
                           .source_stride = source_width},
                          threads);
  }
  void pack_qkv(const T* qkv, kernels::Threads threads) {
    for (int peer = 0; peer < ranks_; ++peer) {
      T* target = block(sent_, peer, rows() * qkv_width(whole_));
      for_each_part(peer, [&](std::int64_t shared, std::int64_t whole, std::int64_t count) {
        copy_columns(qkv + shared, qkv_width(shape_), target + whole, qkv_width(whole_), count,
                     threads);
      });
    }
  }
  void unpack_qkv(int peer, T* qkv, kernels::Threads threads) {
    const T* source = block(arrived_, peer, rows() * qkv_width(whole_));
    for_each_part(peer, [&](std::int64_t shared, std::int64_t whole, std::int64_t count) {
      copy_columns(source + whole, qkv_width(whole_), qkv + shared, qkv_width(shape_), count,
                   threads);
    });
  }

  // Between blocks by rank, [ranks][B, T / c, width], and whole arrays, [B, T, width].
  void unpack_whole(T* blocks, T* whole, std::int64_t width, kernels::Threads threads) const {
    const std::int64_t run = shape_.time * width;
    for (int peer = 0; peer < ranks_; ++peer)
      kernels::copy_rows<T>(
          whole + peer * run, block(blocks, peer, rows() * width),
          {.rows = shape_.batch, .width = run, .target_stride = ranks_ * run, .source_stride = run},
          threads);
  }
  void pack_whole(const T* whole, std::int64_t width, kernels::Threads threads) {
    const std::int64_t run = shape_.time * width;
    for (int peer = 0; peer < ranks_; ++peer)
      kernels::copy_rows<T>(
          block(sent_, peer, rows() * width), whole + peer * run,
          {.rows = shape_.batch, .width = run, .target_stride = run, .source_stride = ranks_ * run},
          threads);
  }

  // The gradients of this rank's positions go to the ranks of the heads; behind them, [B, H / c,
  // T / c] of W, their row sums.
  void send_gradients(const T* attention, const T* d_attention, kernels::Threads threads) {
    const std::int64_t width = head_width(shape_);
    kernels::attention_row_dot<T>(shape_, {attention, shape_.time * width, width},
                                  {d_attention, shape_.time * width, width}, row_dot_, threads);
    const std::int64_t gradients = rows() * head_width(whole_);
    const std::int64_t sums = rows() * whole_.heads * kSumWidth;
    const std::int64_t run = shape_.time * kSumWidth;  // of one head of one sequence
    const auto* row_dot = reinterpret_cast<const T*>(row_dot_);
    for (int peer = 0; peer < ranks_; ++peer) {
      T* target = block(sent_, peer, gradients + sums);
      copy_columns(d_attention + peer * head_width(whole_), width, target, head_width(whole_),
                   head_width(whole_), threads);
      kernels::copy_rows<T>(target + gradients, row_dot + peer * whole_.heads * run,
                            {.rows = shape_.batch,
                             .width = whole_.heads * run,
                             .target_stride = whole_.heads * run,
                             .source_stride = shape_.heads * run},
                            threads);
    }
    exchange(gradients + sums, threads);
    auto* row_dot_whole = reinterpret_cast<T*>(row_dot_whole_);
    for (int peer = 0; peer < ranks_; ++peer) {
      const T* source = block(arrived_, peer, gradients + sums);
      const std::int64_t piece = shape_.time * head_width(whole_);
      kernels::copy_rows<T>(heads_whole_ + peer * piece, source,
                            {.rows = shape_.batch,
                             .width = piece,
                             .target_stride = ranks_ * piece,
                             .source_stride = piece},
                            threads);
      kernels::copy_rows<T>(row_dot_whole + peer * run, source + gradients,
                            {.rows = shape_.batch * whole_.heads,
                             .width = run,
                             .target_stride = ranks_ * run,
                             .source_stride = run},
                            threads);
    }
  }

  // Block i of sent_ goes to rank i, block i of arrived_ comes from it; `count` elements each.
  void exchange(std::int64_t count, kernels::Threads threads) {
    const int rank = context_.rank();
    std::vector<comm::Request> requests;
    for (int i = 1; i < ranks_; ++i) {
      const int peer = (rank - i + ranks_) % ranks_;
      requests.push_back(
          context_.start_recv(block(arrived_, peer, count), count, dtype_of_v<T>, peer));
    }
    for (int i = 1; i < ranks_; ++i) {
      const int peer = (rank + i) % ranks_;
      requests.push_back(
          context_.start_send(block(sent_, peer, count), count, dtype_of_v<T>, peer));
    }
    kernels::copy<T>(block(arrived_, rank, count), block(sent_, rank, count), count, threads);
    for (comm::Request& request : requests) request.wait();
  }

  kernels::AttentionShape shape_;  // of shared arrays
  kernels::AttentionShape whole_;  // of whole ones
  comm::Communicator& context_;
  int ranks_;
  T* sent_ = nullptr;
  T* arrived_ = nullptr;
  T* heads_whole_ = nullptr;  // attention's output, then its gradient
  W* d_qkv_whole_ = nullptr;
  T* d_qkv_narrow_ = nullptr;   // null where it is the same
  W* row_dot_ = nullptr;        // [B, H, T / c]
  W* row_dot_whole_ = nullptr;  // [B, H / c, T]
};

}  // namespace

template <typename T>
std::unique_ptr<Attention<T>> make_ulysses_attention(const kernels::AttentionShape& shape,
                                                     comm::Communicator& context,
                                                     Arena& workspace) {
  return std::make_unique<UlyssesAttention<T>>(shape, context, workspace);
}

template std::unique_ptr<Attention<float>> make_ulysses_attention<float>(
    const kernels::AttentionShape&, comm::Communicator&, Arena&);
template std::unique_ptr<Attention<bf16>> make_ulysses_attention<bf16>(
    const kernels::AttentionShape&, comm::Communicator&, Arena&);
template std::unique_ptr<Attention<double>> make_ulysses_attention<double>(
    const kernels::AttentionShape&, comm::Communicator&, Arena&);

}  // namespace sinew::model
