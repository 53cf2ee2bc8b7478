#include "model/attention.h"

namespace sinew::model {

namespace {

template <typename T>
class LocalAttention final : public Attention<T> {
 public:
  explicit LocalAttention(const kernels::AttentionShape& shape) : shape_(shape) {}

  void forward(T* qkv, T* attention, kernels::Wide<T>* lse, kernels::Threads threads) override {
    const T* in = qkv;
    kernels::attention_forward<T>(shape_, queries(in), keys(in), values(in), heads(attention), lse,
                                  threads);
  }

  void backward(const T* qkv, const T* attention, const kernels::Wide<T>* lse, const T* d_attention,
                T* d_qkv, kernels::Threads threads) override {
    kernels::attention_backward<T>(shape_, queries(qkv), keys(qkv), values(qkv), heads(attention),
                                   lse, heads(d_attention), queries(d_qkv), keys(d_qkv),
                                   values(d_qkv), threads);
  }

 private:
  template <typename U>
  kernels::HeadView<U> view(U* data, std::int64_t width) const {
    return {data, shape_.time * width, width};
  }
  std::int64_t width() const { return (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim; }
  template <typename U>
  kernels::HeadView<U> queries(U* qkv) const {
    return view(qkv, width());
  }
  template <typename U>
  kernels::HeadView<U> keys(U* qkv) const {
    return view(qkv + shape_.heads * shape_.head_dim, width());
  }
  template <typename U>
  kernels::HeadView<U> values(U* qkv) const {
    return view(qkv + (shape_.heads + shape_.kv_heads) * shape_.head_dim, width());
  }
  template <typename U>
  kernels::HeadView<U> heads(U* data) const {
    return view(data, shape_.heads * shape_.head_dim);
  }

  kernels::AttentionShape shape_;
};

}  // namespace

template <typename T>
std::unique_ptr<Attention<T>> make_attention(const kernels::AttentionShape& shape,
                                             sched::ContextMode mode, comm::Communicator* context,
                                             Arena& workspace) {
  if (context == nullptr) return std::make_unique<LocalAttention<T>>(shape);
  if (mode == sched::ContextMode::kUlysses)
    return make_ulysses_attention<T>(shape, *context, workspace);
  return make_ring_attention<T>(shape, mode, *context, workspace);
}

template std::unique_ptr<Attention<float>> make_attention<float>(const kernels::AttentionShape&,
                                                                 sched::ContextMode,
                                                                 comm::Communicator*, Arena&);
template std::unique_ptr<Attention<bf16>> make_attention<bf16>(const kernels::AttentionShape&,
                                                               sched::ContextMode,
                                                               comm::Communicator*, Arena&);
template std::unique_ptr<Attention<double>> make_attention<double>(const kernels::AttentionShape&,
                                                                   sched::ContextMode,
                                                                   comm::Communicator*, Arena&);

}  // namespace sinew::model
