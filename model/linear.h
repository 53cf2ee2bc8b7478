// Linear layers on one rank: y = x W + b with W: [in, out], or [out, in] where the shape says so
// (GPT-2's and Llama's files), and their gradients. What makes them
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
  bool out_first = false;  // w and d_w: [out, in]
};

// y: [rows, out] = x: [rows, in] times W. 2 rows in out flops.
template <typename T>
void linear_forward(const LinearShape& s, const T* x, const T* w, T* y, kernels::Threads threads) {
  kernels::gemm<T>({.m = s.rows,
                    .n = s.out,
                    .k = s.in,
                    .b_form = s.out_first ? kernels::Form::kTransposed : kernels::Form::kPlain,
                    .a_stride = s.in,
                    .b_stride = s.out_first ? s.in : s.out,
                    .c_stride = s.out},
                   T{1}, x, w, T{0}, y, threads);
}

// d_x: [rows, in] = d_y W^T.
template <typename T>
void linear_backward_input(const LinearShape& s, const T* d_y, const T* w, T* d_x,
                           kernels::Threads threads) {
  kernels::gemm<T>({.m = s.rows,
                    .n = s.in,
                    .k = s.out,
                    .b_form = s.out_first ? kernels::Form::kPlain : kernels::Form::kTransposed,
                    .a_stride = s.out,
                    .b_stride = s.out_first ? s.in : s.out,
                    .c_stride = s.in},
                   T{1}, d_y, w, T{0}, d_x, threads);
}

// d_w += x^T d_y, or its transpose.
template <typename T>
void linear_backward_weight(const LinearShape& s, const T* x, const T* d_y, T* d_w,
                            kernels::Threads threads) {
  if (s.out_first) {
    kernels::gemm<T>({.m = s.out,
                      .n = s.in,
                      .k = s.rows,
                      .a_form = kernels::Form::kTransposed,
                      .a_stride = s.out,
                      .b_stride = s.in,
                      .c_stride = s.in},
                     T{1}, d_y, x, T{1}, d_w, threads);
    return;
  }
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
