// The plain GEMM every faster version is tested against. It is written to be read: one accumulator
// per element, k in increasing order, no fused multiply-add.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/element.h"
#include "kernels/gemm.h"
#include "kernels/gemm_epilogue_ref.h"

namespace sinew::kernels {
namespace {

// Columns computed together: 16 accumulators stay in registers on every x86-64 (8 pairs of
// doubles), and the panel of op(B) they need, k x 16, is contiguous and stays in the second-level
// cache up to k = 8192 in f64.
constexpr std::int64_t kColumns = 16;

// panel[k, j] = op(B)[k, column + j]; columns past the end are zero, so that the loop over j has a
// fixed length.
template <typename T>
void copy_panel(const GemmShape& shape, const T* b, std::int64_t column, Wide<T>* panel) {
  const std::int64_t columns = std::min(kColumns, shape.n - column);
  const std::int64_t k_step = shape.b_form == Form::kPlain ? shape.b_stride : 1;
  const std::int64_t column_step = shape.b_form == Form::kPlain ? 1 : shape.b_stride;
  for (std::int64_t k = 0; k < shape.k; ++k)
    for (std::int64_t j = 0; j < kColumns; ++j)
      panel[k * kColumns + j] =
          j < columns ? widen(b[k * k_step + (column + j) * column_step]) : Wide<T>{0};
}

// sums[j] = sum over k of a[k] panel[k, j]. The sums are spelled as 16-byte vectors because the
// compiler would otherwise keep them in memory: five times slower.
template <typename T>
void multiply_row(std::int64_t depth, const T* a, const T* panel, T* sums) {
  using Vector [[gnu::vector_size(16)]] = T;
  constexpr int kLanes = sizeof(Vector) / sizeof(T);
  Vector total[kColumns / kLanes] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 8
    for (int v = 0; v < kColumns / kLanes; ++v) {
      Vector right;
      std::memcpy(&right, panel + k * kColumns + v * kLanes, sizeof right);
      total[v] += a[k] * right;
    }
  }
  std::memcpy(sums, total, sizeof total);
}

template <typename In, typename Out>
void run(const GemmCall<In, Out>& call, const PackedColumns& packed) {
  using W = Wide<In>;
  GemmShape s = call.shape;
  const In* b = call.b;
  if (packed.data != nullptr) {
    b = static_cast<const In*>(packed.data) + packed.first;
    s.b_form = Form::kPlain;
    s.b_stride = packed.columns;
  }
  const std::int64_t a_step = s.a_form == Form::kPlain ? 1 : s.a_stride;
  const std::int64_t a_row_step = s.a_form == Form::kPlain ? s.a_stride : 1;
  std::vector<W> panel(static_cast<std::size_t>(s.k * kColumns));
  std::vector<W> a_row(static_cast<std::size_t>(s.k));
  for (std::int64_t column = 0; column < s.n; column += kColumns) {
    copy_panel(s, b, column, panel.data());
    for (std::int64_t row = 0; row < s.m; ++row) {
      for (std::int64_t k = 0; k < s.k; ++k)
        a_row[static_cast<std::size_t>(k)] = widen(call.a[row * a_row_step + k * a_step]);
      W sums[kColumns];
      multiply_row(s.k, a_row.data(), panel.data(), sums);
      for (std::int64_t j = 0; j < std::min(kColumns, s.n - column); ++j) {
        Out* c = call.c + row * s.c_stride + column + j;
        W z = call.alpha * sums[j];
        if (call.beta != W{0}) z += call.beta * widen(*c);
        finish_element(call.epilogue, row, column + j, z, c);
      }
    }
  }
}

// Packed B is B in plain order.
template <typename T>
void pack(const GemmShape& shape, const T* b, std::int64_t first, std::int64_t count,
          void* packed) {
  const std::int64_t k_step = shape.b_form == Form::kPlain ? shape.b_stride : 1;
  const std::int64_t column_step = shape.b_form == Form::kPlain ? 1 : shape.b_stride;
  for (std::int64_t k = 0; k < shape.k; ++k)
    for (std::int64_t j = first; j < first + count; ++j)
      static_cast<T*>(packed)[k * shape.n + j] = b[k * k_step + j * column_step];
}

}  // namespace

template <typename T>
const GemmFunctions<T>& gemm_plain() {
  static constexpr GemmFunctions<T> kFunctions = {
      .column_unit = 1,
      .run = run<T, T>,
      .run_wide = run<T, Wide<T>>,
      .packed_bytes = [](std::int64_t n,
                         std::int64_t k) { return n * k * static_cast<std::int64_t>(sizeof(T)); },
      .pack = pack<T>};
  return kFunctions;
}

template const GemmFunctions<float>& gemm_plain<float>();
template const GemmFunctions<double>& gemm_plain<double>();
template const GemmFunctions<bf16>& gemm_plain<bf16>();

}  // namespace sinew::kernels
