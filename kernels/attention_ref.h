// The plain attention every faster version is tested against, and the one that serves f64. One
// query row at a time, keys in increasing order, the calling thread only. Same contract as
// attention.h.
#pragma once

#include "kernels/attention.h"

namespace sinew::kernels {

template <typename T>
void attention_forward_reference(const AttentionShape& shape, HeadView<const T> q,
                                 HeadView<const T> k, HeadView<const T> v, HeadView<T> o, T* lse);

template <typename T>
void attention_backward_reference(const AttentionShape& shape, HeadView<const T> q,
                                  HeadView<const T> k, HeadView<const T> v, HeadView<const T> o,
                                  const T* lse, HeadView<const T> d_o, HeadView<T> d_q,
                                  HeadView<T> d_k, HeadView<T> d_v);

}  // namespace sinew::kernels
