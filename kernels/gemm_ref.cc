#include "kernels/gemm.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace sinew::kernels {
namespace {

// Columns computed together: 16 accumulators stay in registers on every x86-64 (8 pairs of
// doubles), and the panel of op(B) they need, k x 16, is contiguous and stays in the second-level
// cache up to k = 8192 in f64.
constexpr std::int64_t kColumns = 16;

// panel[k, j] = op(B)[k, column + j]; columns past the end are zero, so that the loop over j has a
// fixed length.
template <typename T>
void copy_panel(const GemmShape& shape, const T* b, std::int64_t column, T* panel) {
  const std::int64_t columns = std::min(kColumns, shape.n - column);
  const std::int64_t k_step = shape.b_form == Form::kPlain ? shape.b_stride : 1;
  const std::int64_t column_step = shape.b_form == Form::kPlain ? 1 : shape.b_stride;
  for (std::int64_t k = 0; k < shape.k; ++k)
    for (std::int64_t j = 0; j < kColumns; ++j)
      panel[k * kColumns + j] = j < columns ? b[k * k_step + (column + j) * column_step] : T{0};
}

// c[0..columns) = alpha * sum over k of a[k] panel[k, :] + beta * c. The sums are spelled as
// 16-byte vectors because the compiler would otherwise keep them in memory: five times slower.
template <typename T>
void multiply_row(std::int64_t depth, T alpha, const T* a, std::int64_t a_step, const T* panel,
                  T beta, std::int64_t columns, T* c) {
  using Vector [[gnu::vector_size(16)]] = T;
  constexpr int kLanes = sizeof(Vector) / sizeof(T);
  Vector sums[kColumns / kLanes] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 8
    for (int v = 0; v < kColumns / kLanes; ++v) {
      Vector right;
      std::memcpy(&right, panel + k * kColumns + v * kLanes, sizeof right);
      sums[v] += a[k * a_step] * right;
    }
  }
  for (std::int64_t j = 0; j < columns; ++j) {
    const T sum = sums[j / kLanes][j % kLanes];
    c[j] = beta == T{0} ? alpha * sum : alpha * sum + beta * c[j];
  }
}

template <typename T>
void run(const GemmShape& shape, T alpha, const T* a, const T* b, T beta, T* c) {
  const std::int64_t a_step = shape.a_form == Form::kPlain ? 1 : shape.a_stride;
  const std::int64_t a_row_step = shape.a_form == Form::kPlain ? shape.a_stride : 1;
  std::vector<T> panel(static_cast<std::size_t>(shape.k * kColumns));
  for (std::int64_t column = 0; column < shape.n; column += kColumns) {
    copy_panel(shape, b, column, panel.data());
    for (std::int64_t row = 0; row < shape.m; ++row)
      multiply_row(shape.k, alpha, a + row * a_row_step, a_step, panel.data(), beta,
                   std::min(kColumns, shape.n - column), c + row * shape.c_stride + column);
  }
}

}  // namespace

// One accumulator per element, k in increasing order, no fused multiply-add.
template <typename T>
const GemmFunctions<T>& gemm_plain() {
  static constexpr GemmFunctions<T> kFunctions = {run<T>};
  return kFunctions;
}

template const GemmFunctions<float>& gemm_plain<float>();
template const GemmFunctions<double>& gemm_plain<double>();

}  // namespace sinew::kernels
