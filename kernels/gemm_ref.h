// The plain GEMM every faster version is tested against, and the one that serves f64. It is written
// to be read: one accumulator per element, k in increasing order, no fused multiply-add, the
// calling thread only. T is float or double. Same contract as gemm in gemm.h.
#pragma once

#include "kernels/gemm.h"

namespace sinew::kernels {

template <typename T>
void gemm_reference(const GemmShape& shape, T alpha, const T* a, const T* b, T beta, T* c);

extern template void gemm_reference<float>(const GemmShape&, float, const float*, const float*,
                                           float, float*);
extern template void gemm_reference<double>(const GemmShape&, double, const double*, const double*,
                                            double, double*);

}  // namespace sinew::kernels
