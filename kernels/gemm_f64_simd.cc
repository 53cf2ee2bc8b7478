// The vector GEMM of f64, for the reference mode: one level of blocking. Panels of B, [k, 2
// vectors], are packed once for a block of columns that fits a part of the third level; a group of
// rows of A, [k, rows], is packed into the second level and meets every panel of the block. A tile
// keeps its sums in registers over the whole of k, so an element is one chain of fused
// multiply-adds, k in increasing order, wherever it lies.
//
// 12 rows x 2 vectors of 8 (AVX-512) keep 24 sums in 32 registers, 6 x 2 of 4 (AVX2) 12 in 16; two
// multipliers of latency 4 need 8 chains.
#include <algorithm>

#include "kernels/gemm.h"
#include "kernels/gemm_epilogue_ref.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_f64_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

using DoubleTag = hn::ScalableTag<double>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(DoubleTag()));
constexpr std::int64_t kWidth = 2 * kLanes;
constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 12 : 6;
constexpr int kFewRows = 3;

// sums[r, j] = sum over k of a[k * rows + r] panel[k, j].
template <int rows>
HWY_INLINE void multiply(std::int64_t depth, const double* a, const double* panel, double* sums) {
  const DoubleTag d;
  hn::Vec<DoubleTag> low[rows], high[rows];
  for_rows<rows>([&](auto r) SINEW_LAMBDA { low[r] = high[r] = hn::Zero(d); });
  for (std::int64_t k = 0; k < depth; ++k, a += rows, panel += kWidth) {
    const auto right_low = hn::LoadU(d, panel);
    const auto right_high = hn::LoadU(d, panel + kLanes);
    for_rows<rows>([&](auto r) SINEW_LAMBDA {
      const auto left = hn::Set(d, a[r]);
      low[r] = hn::MulAdd(left, right_low, low[r]);
      high[r] = hn::MulAdd(left, right_high, high[r]);
    });
  }
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    hn::StoreU(low[r], d, sums + r * kWidth);
    hn::StoreU(high[r], d, sums + r * kWidth + kLanes);
  });
}

// panel[k, i] = row k of op(X), `present` elements from x on, zeros past them up to `width`.
void pack_panel(Form form, const double* x, std::int64_t stride, std::int64_t depth,
                std::int64_t present, std::int64_t width, double* panel) {
  const std::int64_t k_step = form == Form::kPlain ? stride : 1;
  const std::int64_t step = form == Form::kPlain ? 1 : stride;
  for (std::int64_t k = 0; k < depth; ++k, panel += width)
    for (std::int64_t i = 0; i < width; ++i)
      panel[i] = i < present ? x[k * k_step + i * step] : 0.0;
}

void pack(const GemmShape& shape, const double* b, std::int64_t first, std::int64_t count,
          void* packed) {
  const std::int64_t step = shape.b_form == Form::kPlain ? 1 : shape.b_stride;
  for (std::int64_t column = first; column < first + count; column += kWidth)
    pack_panel(shape.b_form, b + column * step, shape.b_stride, shape.k,
               std::min(kWidth, shape.n - column), kWidth,
               static_cast<double*>(packed) + column * shape.k);
}

// `rows` rows of A against the columns [begin, end) of C, whose panels start at b.
template <int rows>
void multiply_group(const GemmCall<double>& call, std::int64_t row, const double* a,
                    const double* b, std::int64_t begin, std::int64_t end) {
  const GemmShape& s = call.shape;
  HWY_ALIGN double sums[rows * kWidth];
  for (std::int64_t column = begin; column < end; column += kWidth, b += kWidth * s.k) {
    multiply<rows>(s.k, a, b, sums);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < std::min(kWidth, end - column); ++j) {
        double* c = call.c + (row + r) * s.c_stride + column + j;
        double z = call.alpha * sums[r * kWidth + j];
        if (call.beta != 0) z += call.beta * *c;
        finish_element(call.epilogue, row + r, column + j, z, c);
      }
    }
  }
}

// Rows in groups of kRows, then of kFewRows, then one by one: the same sums for each element.
void multiply_block(const GemmCall<double>& call, const double* b, std::int64_t begin,
                    std::int64_t end, double* a_packed) {
  const GemmShape& s = call.shape;
  const Form form = s.a_form == Form::kPlain ? Form::kTransposed : Form::kPlain;
  const std::int64_t step = s.a_form == Form::kPlain ? s.a_stride : 1;
  std::int64_t row = 0;
  const auto run = [&](auto rows) {
    pack_panel(form, call.a + row * step, s.a_stride, s.k, rows(), rows(), a_packed);
    multiply_group<rows()>(call, row, a_packed, b, begin, end);
    row += rows();
  };
  while (row + kRows <= s.m) run(std::integral_constant<int, kRows>());
  while (row + kFewRows <= s.m) run(std::integral_constant<int, kFewRows>());
  while (row < s.m) run(std::integral_constant<int, 1>());
}

void run(const GemmCall<double>& call, const PackedColumns& packed) {
  const GemmShape& s = call.shape;
  // 4 MiB of B at a time: an eighth of a server's third level, and most weights whole.
  constexpr std::int64_t kBlockElements = std::int64_t{1} << 19;
  const std::int64_t columns =
      std::max(kWidth, kBlockElements / std::max<std::int64_t>(1, s.k) / kWidth * kWidth);
  const auto a_packed = allocate_scratch<double>(kRows * s.k);
  Scratch<double> b_packed;
  if (packed.data == nullptr)
    b_packed = allocate_scratch<double>(std::min(columns, s.n + kWidth) * s.k);
  for (std::int64_t begin = 0; begin < s.n; begin += columns) {
    const std::int64_t end = std::min(begin + columns, s.n);
    if (packed.data != nullptr) {
      const double* panels = static_cast<const double*>(packed.data);
      multiply_block(call, panels + (packed.first + begin) * s.k, begin, end, a_packed.get());
      continue;
    }
    const std::int64_t step = s.b_form == Form::kPlain ? 1 : s.b_stride;
    for (std::int64_t column = begin; column < end; column += kWidth)
      pack_panel(s.b_form, call.b + column * step, s.b_stride, s.k, std::min(kWidth, end - column),
                 kWidth, b_packed.get() + (column - begin) * s.k);
    multiply_block(call, b_packed.get(), begin, end, a_packed.get());
  }
}

std::int64_t packed_bytes(std::int64_t n, std::int64_t k) {
  return (n + kWidth - 1) / kWidth * kWidth * k * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace

constexpr GemmFunctions<double> kGemmF64 = {
    .column_unit = kWidth, .run = run, .run_wide = run, .packed_bytes = packed_bytes, .pack = pack};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

const GemmFunctions<double>* gemm_f64_simd(Isa isa) { return SINEW_SIMD_VERSION(isa, kGemmF64); }

}  // namespace sinew::kernels
#endif
