// Linear layers on one rank: y = x W + b with W: [in, out], and their gradients. What makes them
// column- or row-parallel is which slice of W a rank holds (layout.h) and where block.cc reduces.
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/threads.h"

namespace sinew::model {

struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// y: [rows, out] = x: [rows, in] times w: [in, out]. 2 rows in out flops.
template <typename T>
void linear_forward(const LinearShape& s, const T* x, const T* w, T* y, kernels::Threads threads) {
  kernels::gemm<T>(
      {.m = s.rows, .n = s.out, .k = s.in, .a_stride = s.in, .b_stride = s.out, .c_stride = s.out},
      T{1}, x, w, T{0}, y, threads);
}

// d_x: [rows, in] = d_y W^T.
template <typename T>
void linear_backward_input(const LinearShape& s, const T* d_y, const T* w, T* d_x,
                           kernels::Threads threads) {
  kernels::gemm<T>({.m = s.rows,
                    .n = s.in,
                    .k = s.out,
                    .b_form = kernels::Form::kTransposed,
                    .a_stride = s.out,
                    .b_stride = s.out,
                    .c_stride = s.in},
                   T{1}, d_y, w, T{0}, d_x, threads);
}

// d_w: [in, out] += x^T d_y.
template <typename T>
void linear_backward_weight(const LinearShape& s, const T* x, const T* d_y, T* d_w,
                            kernels::Threads threads) {
  kernels::gemm<T>({.m = s.in,
                    .n = s.out,
                    .k = s.rows,
                    .a_form = kernels::Form::kTransposed,
                    .a_stride = s.in,
                    .b_stride = s.out,
                    .c_stride = s.out},
                   T{1}, x, d_y, T{1}, d_w, threads);
}

}  // namespace sinew::model
