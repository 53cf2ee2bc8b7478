#include "kernels/attention.h"

#include "kernels/attention_ref.h"
#include "sched/base/check.h"

namespace sinew::kernels {
namespace {

void check_shape(const AttentionShape& shape) {
  CHECK_GE(shape.batch, 0);
  CHECK_GE(shape.time, 0);
  CHECK_GE(shape.kv_heads, 1);
  CHECK_GE(shape.head_dim, 1);
  CHECK_EQ(shape.heads % shape.kv_heads, 0);
}

}  // namespace

template <typename T>
void attention_forward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                       HeadView<const T> v, HeadView<T> o, T* lse, Threads threads) {
  check_shape(shape);
  CHECK_GE(threads.count, 1);
  attention_forward_reference(shape, q, k, v, o, lse);
}

template <typename T>
void attention_backward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                        HeadView<const T> v, HeadView<const T> o, const T* lse,
                        HeadView<const T> d_o, HeadView<T> d_q, HeadView<T> d_k, HeadView<T> d_v,
                        Threads threads) {
  check_shape(shape);
  CHECK_GE(threads.count, 1);
  attention_backward_reference(shape, q, k, v, o, lse, d_o, d_q, d_k, d_v);
}

template void attention_forward<float>(const AttentionShape&, HeadView<const float>,
                                       HeadView<const float>, HeadView<const float>,
                                       HeadView<float>, float*, Threads);
template void attention_forward<double>(const AttentionShape&, HeadView<const double>,
                                        HeadView<const double>, HeadView<const double>,
                                        HeadView<double>, double*, Threads);
template void attention_backward<float>(const AttentionShape&, HeadView<const float>,
                                        HeadView<const float>, HeadView<const float>,
                                        HeadView<const float>, const float*, HeadView<const float>,
                                        HeadView<float>, HeadView<float>, HeadView<float>, Threads);
template void attention_backward<double>(const AttentionShape&, HeadView<const double>,
                                         HeadView<const double>, HeadView<const double>,
                                         HeadView<const double>, const double*,
                                         HeadView<const double>, HeadView<double>, HeadView<double>,
                                         HeadView<double>, Threads);

}  // namespace sinew::kernels
