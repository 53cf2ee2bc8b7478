// GEMM: C = alpha * op(A) op(B) + beta * C, row-major.
//
// Shapes: op(A): [m, k], op(B): [k, n], C: [m, n]. A is stored [m, k] with leading dimension
// a_stride, or, when transposed, [k, m]; B likewise [k, n] or [n, k]. Strides are in elements and
// at least the row length. beta == 0 never reads C. A and B must not overlap C. m, n or k may be 0.
// Cost: 2 m n k flops. Error: |c - exact| <= (k + 1) u |alpha| |A||B| + u |beta C| per element, u
// the unit roundoff. T is float or double (double is the reference mode and need not be fast).
#pragma once

#include <cstdint>

#include "kernels/threads.h"

namespace sinew::kernels {

enum class Form : std::uint8_t { kPlain, kTransposed };

struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Form a_form = Form::kPlain;
  Form b_form = Form::kPlain;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  std::int64_t c_stride = 0;
};

template <typename T>
void gemm(const GemmShape& shape, T alpha, const T* a, const T* b, T beta, T* c,
          Threads threads = {});

template <>
void gemm<float>(const GemmShape& shape, float alpha, const float* a, const float* b, float beta,
                 float* c, Threads threads);
template <>
void gemm<double>(const GemmShape& shape, double alpha, const double* a, const double* b,
                  double beta, double* c, Threads threads);

}  // namespace sinew::kernels
