#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/convert.h"
#include "kernels/elementwise.h"
#include "model/attention.h"
#include "model/parallel.h"

namespace sinew::model {

namespace {

// The two travellers never share a stream: with two ranks both neighbours are one.
constexpr int kPairTag = 0;
constexpr int kGradientTag = 1;

template <typename T>
class RingAttention final : public Attention<T> {
  using W = kernels::Wide<T>;

 public:
  RingAttention(const kernels::AttentionShape& shape, sched::ContextMode mode,
                comm::Communicator& context, Arena& workspace)
      : shape_(shape), context_(context), ranks_(context.world()), rank_(context.rank()) {
    for (int rank = 0; rank < ranks_; ++rank)
      pieces_.push_back(sched::sequence_pieces(mode, shape.time * ranks_, ranks_, rank));
    pair_count_ = rows() * pair_width();
    for (T** buffer : {&pair_, &next_pair_}) *buffer = workspace.allocate<T>(pair_count_);
    for (W** buffer : {&gradient_, &sent_gradient_, &arrived_gradient_})
      *buffer = workspace.allocate<W>(pair_count_);
    row_dot_ = workspace.allocate<W>(rows() * shape.heads);
    if constexpr (!kWide) wide_ = workspace.allocate<W>(rows() * width());
  }

  void forward(T* qkv, T* attention, W* lse, kernels::Threads threads) override {
    pack_pair(qkv, threads);
    W* out = accumulator(attention);
    kernels::clear<W>(out, rows() * query_width(), threads);
    kernels::fill<W>(lse, -std::numeric_limits<W>::infinity(), rows() * shape_.heads, threads);
    for (int hop = 0; hop < ranks_; ++hop) {
      Exchange exchange = start_pair_exchange(hop);
      for_each_seen(hop, [&](const auto& seen) {
        kernels::attention_forward_partial<T>(
            seen.shape, seen.keys, queries<const T>(qkv, seen.q), keys<const T>(pair_, seen.k),
            values<const T>(pair_, seen.k), heads(out, seen.q), rows_of(lse, seen.q), threads);
      });
      finish_pair_exchange(exchange, hop);
    }
    narrow(out, attention, rows() * query_width(), threads);
  }

  void backward(const T* qkv, const T* attention, const W* lse, const T* d_attention, T* d_qkv,
                kernels::Threads threads) override {
    pack_pair(qkv, threads);
    W* d_wide = accumulator(d_qkv);
    kernels::clear<W>(d_wide, rows() * width(), threads);
    for (const sched::SequencePiece& q : own())
      kernels::attention_row_dot<T>(shape_of(q), heads<const T>(attention, q),
                                    heads<const T>(d_attention, q), rows_of(row_dot_, q), threads);
    Exchange travelling;
    for (int hop = 0; hop < ranks_; ++hop) {
      Exchange exchange = start_pair_exchange(hop);
      kernels::clear<W>(gradient_, pair_count_, threads);
      for_each_seen(hop, [&](const auto& seen) {
        kernels::attention_backward_partial<T>(
            seen.shape, seen.keys, queries(qkv, seen.q), keys<const T>(pair_, seen.k),
            values<const T>(pair_, seen.k), rows_of(lse, seen.q),
            rows_of<const W>(row_dot_, seen.q), heads(d_attention, seen.q), queries(d_wide, seen.q),
            keys(gradient_, seen.k), values(gradient_, seen.k), threads);
      });
      if (hop > 0) {
        travelling.wait();
        kernels::add<W>(gradient_, arrived_gradient_, pair_count_, threads);
      }
      std::swap(gradient_, sent_gradient_);
      travelling = start<W>(sent_gradient_, arrived_gradient_, kGradientTag);
      finish_pair_exchange(exchange, hop);
    }
    travelling.wait();
    unpack_gradient(d_wide, threads);
    narrow(d_wide, d_qkv, rows() * width(), threads);
  }

 private:
  struct Exchange {
    comm::Request send;
    comm::Request receive;
    void wait() {
      receive.wait();
      send.wait();
    }
  };
  // Queries of one of this rank's pieces and the keys of another piece that they see some of.
  struct Seen {
    const sched::SequencePiece& q;
    const sched::SequencePiece& k;
    kernels::AttentionShape shape;
    kernels::KeySpan keys;
  };

  const std::vector<sched::SequencePiece>& own() const {
    return pieces_[static_cast<std::size_t>(rank_)];
  }
  // What the blocks' parts accumulate in: the caller's buffer, or one of f32 beside one of bf16.
  static constexpr bool kWide = std::is_same_v<T, W>;
  W* accumulator(T* buffer) const {
    if constexpr (kWide) {
      return buffer;
    } else {
      return wide_;
    }
  }
  void narrow(const W* from, T* to, std::int64_t count, kernels::Threads threads) const {
    if constexpr (!kWide) kernels::convert(from, to, count, threads);
  }

  std::int64_t rows() const { return shape_.batch * shape_.time; }
  std::int64_t query_width() const { return shape_.heads * shape_.head_dim; }
  std::int64_t key_width() const { return shape_.kv_heads * shape_.head_dim; }
  std::int64_t pair_width() const { return 2 * key_width(); }
  std::int64_t width() const { return query_width() + pair_width(); }
  kernels::AttentionShape shape_of(const sched::SequencePiece& q) const {
    kernels::AttentionShape shape = shape_;
    shape.time = q.count;
    return shape;
  }

  template <typename U>
  kernels::HeadView<U> view(U* data, const sched::SequencePiece& piece,
                            std::int64_t row_width) const {
    return {data + piece.begin * row_width, shape_.time * row_width, row_width};
  }
  template <typename U>
  kernels::HeadView<U> queries(U* qkv, const sched::SequencePiece& q) const {
    return view(qkv, q, width());
  }
  template <typename U>
  kernels::HeadView<U> heads(U* data, const sched::SequencePiece& q) const {
    return view(data, q, query_width());
  }
  template <typename U>
  kernels::HeadView<U> keys(U* pair, const sched::SequencePiece& k) const {
    return view(pair, k, pair_width());
  }
  template <typename U>
  kernels::HeadView<U> values(U* pair, const sched::SequencePiece& k) const {
    return view(pair + key_width(), k, pair_width());
  }
  // [pieces][B, H, piece]
  template <typename U>
  U* rows_of(U* per_head, const sched::SequencePiece& q) const {
    return per_head + shape_.batch * shape_.heads * q.begin;
  }

  // Keys and values follow each other in a row of qkv.
  void pack_pair(const T* qkv, kernels::Threads threads) {
    kernels::copy_rows<T>(pair_, qkv + query_width(),
                          {.rows = rows(),
                           .width = pair_width(),
                           .target_stride = pair_width(),
                           .source_stride = width()},
                          threads);
  }
  void unpack_gradient(W* d_qkv, kernels::Threads threads) const {
    kernels::copy_rows<W>(d_qkv + query_width(), arrived_gradient_,
                          {.rows = rows(),
                           .width = pair_width(),
                           .target_stride = width(),
                           .source_stride = pair_width()},
                          threads);
  }

  // In hop i pair_ holds the keys and values of the rank i places before this one.
  template <typename Body>
  void for_each_seen(int hop, Body&& body) const {
    const auto source = static_cast<std::size_t>((rank_ - hop + ranks_) % ranks_);
    for (const sched::SequencePiece& q : own()) {
      for (const sched::SequencePiece& k : pieces_[source]) {
        const std::int64_t diagonal = sched::causal_diagonal(q, k);
        if (diagonal <= -q.count) continue;
        body(Seen{q, k, shape_of(q), {.time = k.count, .diagonal = diagonal}});
      }
    }
  }

  template <typename U>
  Exchange start(const U* out, U* in, int tag) {
    Exchange exchange;
    exchange.receive =
        context_.start_recv(in, pair_count_, dtype_of_v<U>, (rank_ - 1 + ranks_) % ranks_, tag);
    exchange.send = context_.start_send(out, pair_count_, dtype_of_v<U>, (rank_ + 1) % ranks_, tag);
    return exchange;
  }
  // After the last hop nobody needs the pairs any more.
  Exchange start_pair_exchange(int hop) {
    return hop + 1 < ranks_ ? start<T>(pair_, next_pair_, kPairTag) : Exchange{};
  }
  void finish_pair_exchange(Exchange& exchange, int hop) {
    if (hop + 1 == ranks_) return;
    exchange.wait();
    std::swap(pair_, next_pair_);
  }

  kernels::AttentionShape shape_;
  comm::Communicator& context_;
  int ranks_;
  int rank_;
  std::vector<std::vector<sched::SequencePiece>> pieces_;  // by rank
  std::int64_t pair_count_ = 0;
  T* pair_ = nullptr;  // [rows, 2 K d] keys and values that are computed on
  T* next_pair_ = nullptr;
  W* gradient_ = nullptr;  // of pair_ through this rank's queries, then with those before it
  W* sent_gradient_ = nullptr;
  W* arrived_gradient_ = nullptr;
  W* row_dot_ = nullptr;
  W* wide_ = nullptr;  // [rows, width()] accumulator beside bf16 buffers
};

}  // namespace

template <typename T>
std::unique_ptr<Attention<T>> make_ring_attention(const kernels::AttentionShape& shape,
                                                  sched::ContextMode mode,
                                                  comm::Communicator& context, Arena& workspace) {
  return std::make_unique<RingAttention<T>>(shape, mode, context, workspace);
}

template std::unique_ptr<Attention<float>> make_ring_attention<float>(
    const kernels::AttentionShape&, sched::ContextMode, comm::Communicator&, Arena&);
template std::unique_ptr<Attention<bf16>> make_ring_attention<bf16>(const kernels::AttentionShape&,
                                                                    sched::ContextMode,
                                                                    comm::Communicator&, Arena&);
template std::unique_ptr<Attention<double>> make_ring_attention<double>(
    const kernels::AttentionShape&, sched::ContextMode, comm::Communicator&, Arena&);

}  // namespace sinew::model
