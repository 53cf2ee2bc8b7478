#include "kernels/gemm.h"

#include "kernels/gemm_ref.h"
#include "sched/base/check.h"

namespace sinew::kernels {
namespace {

void check_shape(const GemmShape& shape) {
  CHECK_GE(shape.m, 0);
  CHECK_GE(shape.n, 0);
  CHECK_GE(shape.k, 0);
  CHECK_GE(shape.a_stride, shape.a_form == Form::kPlain ? shape.k : shape.m);
  CHECK_GE(shape.b_stride, shape.b_form == Form::kPlain ? shape.n : shape.k);
  CHECK_GE(shape.c_stride, shape.n);
}

}  // namespace

template <>
void gemm<float>(const GemmShape& shape, float alpha, const float* a, const float* b, float beta,
                 float* c, Threads threads) {
  check_shape(shape);
  CHECK_GE(threads.count, 1);
  gemm_reference(shape, alpha, a, b, beta, c);
}

template <>
void gemm<double>(const GemmShape& shape, double alpha, const double* a, const double* b,
                  double beta, double* c, Threads threads) {
  check_shape(shape);
  CHECK_GE(threads.count, 1);
  gemm_reference(shape, alpha, a, b, beta, c);
}

}  // namespace sinew::kernels
