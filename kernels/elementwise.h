// Small element-wise and column-wise kernels: residual addition, bias and its gradient, sum of
// squares.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/threads.h"

namespace sinew::kernels {

// target[i] += source[i]; the residual connection and gradient accumulation. source may be target.
template <typename T>
void add(T* target, const T* source, std::int64_t count, Threads threads = {});

// y[r, c] += bias[c]. y: [rows, channels] row-major; bias: [channels].
template <typename T>
void add_bias(T* y, const T* bias, std::int64_t rows, std::int64_t channels, Threads threads = {});

// d_bias[c] += sum over r of d_y[r, c], rows in increasing order, each addition rounded to T.
template <typename T>
void bias_backward(const T* d_y, Wide<T>* d_bias, std::int64_t rows, std::int64_t channels,
                   Threads threads = {});

// Sum of squares in f64; the gradient norm's building block. Fixed order, the same on every
// processor and version: lane j of kSquareLanes adds, in increasing order, the squares of the
// elements i with i mod kSquareLanes == j (each square and sum one f64 rounding); then lanes are
// added pairwise, j and j + half, halving until one is left.
inline constexpr int kSquareLanes = 32;
template <typename T>
[[nodiscard]] double sum_of_squares(const T* data, std::int64_t count, Threads threads = {});

// target[i] = source[i]; no overlap. target[i] = 0. Of arrays wherever they lie, like the kernels.
template <typename T>
void copy(T* target, const T* source, std::int64_t count, Threads threads = {});
template <typename T>
void clear(T* target, std::int64_t count, Threads threads = {});
// target[i] = value.
template <typename T>
void fill(T* target, T value, std::int64_t count, Threads threads = {});
// `rows` rows of `width` elements between matrices whose rows lie that many elements apart; no
// overlap. What the elements are does not matter, only their size.
struct CopyRows {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t target_stride = 0;
  std::int64_t source_stride = 0;
};
template <typename T>
void copy_rows(T* target, const T* source, const CopyRows& rows, Threads threads = {});
// Returns when what was called before is done: the arrays of an accelerator may then be read here.
void synchronize(Threads threads);
// Whether calls are recorded now, to run later (accelerator.h).
[[nodiscard]] bool recording(Threads threads);

// What one version provides; see registry.h. Column ranges let threads share a matrix: [begin,
// end).
template <typename T>
struct ElementwiseFunctions {
  static constexpr std::string_view kOperation = "elementwise";
  using Element = T;
  void (*add)(T* target, const T* source, std::int64_t count);
  void (*add_bias)(T* y, const T* bias, std::int64_t rows, std::int64_t channels);
  void (*bias_backward)(const T* d_y, Wide<T>* d_bias, std::int64_t rows, std::int64_t channels,
                        std::int64_t begin, std::int64_t end);
  double (*sum_of_squares)(const T* data, std::int64_t count);
};
template <typename T>
[[nodiscard]] const ElementwiseFunctions<T>& elementwise_plain();
// Null where this build has no code for `isa`; float and bf16.
template <typename T>
[[nodiscard]] const ElementwiseFunctions<T>* elementwise_simd(Isa isa);

}  // namespace sinew::kernels
