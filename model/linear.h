// Linear layers on one rank: y = x W + b with W: [in, out], or [out, in] where the shape says so
// (GPT-2's and Llama's files), and their gradients. What makes them
// column- or row-parallel is which slice of W a rank holds (layout.h) and where block.cc reduces.
// T is float, double or bf16, whose products are summed in f32 and rounded once; gradients of
// weights are Wide<T>.
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
  kernels::gemm<T, T>(
      {.shape = {.m = s.rows,
                 .n = s.out,
                 .k = s.in,
                 .b_form = s.out_first ? kernels::Form::kTransposed : kernels::Form::kPlain,
                 .a_stride = s.in,
                 .b_stride = s.out_first ? s.in : s.out,
                 .c_stride = s.out},
       .a = x,
       .b = w,
       .c = y},
      threads);
}

// d_x: [rows, in] = d_y W^T.
template <typename T>
void linear_backward_input(const LinearShape& s, const T* d_y, const T* w, T* d_x,
                           kernels::Threads threads) {
  kernels::gemm<T, T>(
      {.shape = {.m = s.rows,
                 .n = s.in,
                 .k = s.out,
                 .b_form = s.out_first ? kernels::Form::kPlain : kernels::Form::kTransposed,
                 .a_stride = s.out,
                 .b_stride = s.out_first ? s.in : s.out,
                 .c_stride = s.in},
       .a = d_y,
       .b = w,
       .c = d_x},
      threads);
}

// d_w += x^T d_y, or its transpose.
template <typename T>
void linear_backward_weight(const LinearShape& s, const T* x, const T* d_y, kernels::Wide<T>* d_w,
                            kernels::Threads threads) {
  const std::int64_t m = s.out_first ? s.out : s.in;
  const std::int64_t n = s.out_first ? s.in : s.out;
  kernels::gemm<T, kernels::Wide<T>>({.shape = {.m = m,
                                                .n = n,
                                                .k = s.rows,
                                                .a_form = kernels::Form::kTransposed,
                                                .a_stride = m,
                                                .b_stride = n,
                                                .c_stride = n},
                                      .a = s.out_first ? d_y : x,
                                      .b = s.out_first ? x : d_y,
                                      .beta = 1,
                                      .c = d_w},
                                     threads);
}

}  // namespace sinew::model
