// The versions of GEMM in the registry: the blocking on each instruction set's kernels.
#include <algorithm>

#include "kernels/gemm.h"
#include "kernels/gemm_blocked.h"
#include "kernels/gemm_tile.h"
#include "sched/base/partition.h"

namespace sinew::kernels {
namespace {

// Packed B: for each pass over k the panels of all columns, one after the other.
template <typename T>
void pack(const GemmKernels<T>& kernels, const GemmShape& shape, const T* b, std::int64_t first,
          std::int64_t count, void* packed) {
  const std::int64_t width = kernels.tile_columns;
  const std::int64_t columns = round_up(shape.n, width);
  const std::int64_t words = ceil_divide(shape.k, kernels.word_elements);
  const std::int64_t depth = gemm_blocking(width, words, cpu()).depth;
  const std::int64_t passes = std::max<std::int64_t>(1, ceil_divide(words, depth));
  const bool is_plain = shape.b_form == Form::kPlain;
  for (std::int64_t i = 0; i < passes; ++i) {
    const Part k = partition(words, passes, i);
    const std::int64_t element = k.offset * kernels.word_elements;
    const std::int64_t elements = std::min(k.count * kernels.word_elements, shape.k - element);
    for (std::int64_t column = first; column < first + count; column += width) {
      const T* source =
          is_plain ? b + element * shape.b_stride + column : b + column * shape.b_stride + element;
      (is_plain ? kernels.pack_b : kernels.pack_b_transposed)(
          {source, shape.b_stride}, std::min(width, shape.n - column), elements,
          static_cast<float*>(packed) + columns * k.offset + column * k.count);
    }
  }
}

template <typename T, const GemmKernels<T>* (*kKernels)()>
const GemmFunctions<T>* functions_of() {
  if (kKernels() == nullptr) return nullptr;
  static const GemmFunctions<T> functions = {
      .column_unit = kKernels()->tile_columns,
      .run = [](const GemmCall<T, T>& call,
                const PackedColumns& packed) { gemm_blocked(*kKernels(), call, packed); },
      .run_wide = [](const GemmCall<T, float>& call,
                     const PackedColumns& packed) { gemm_blocked(*kKernels(), call, packed); },
      .packed_bytes =
          [](std::int64_t n, std::int64_t k) {
            const std::int64_t width = kKernels()->tile_columns;
            return round_up(n, width) * ceil_divide(k, kKernels()->word_elements) * 4;
          },
      .pack = [](const GemmShape& shape, const T* b, std::int64_t first, std::int64_t count,
                 void* packed) { pack(*kKernels(), shape, b, first, count, packed); }};
  return &functions;
}

}  // namespace

template <>
const GemmFunctions<float>* gemm_fast<float>(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return functions_of<float, gemm_kernels_portable>();
    case Isa::kAvx2:
      return functions_of<float, gemm_kernels_avx2>();
    case Isa::kAvx512:
      return functions_of<float, gemm_kernels_avx512>();
    case Isa::kAvx512Bf16:
      return nullptr;
  }
  __builtin_unreachable();
}

template <>
const GemmFunctions<bf16>* gemm_fast<bf16>(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return functions_of<bf16, gemm_bf16_kernels_portable>();
    case Isa::kAvx2:
      return functions_of<bf16, gemm_bf16_kernels_avx2>();
    case Isa::kAvx512:
      return functions_of<bf16, gemm_bf16_kernels_avx512>();
    case Isa::kAvx512Bf16:
      return functions_of<bf16, gemm_bf16_kernels_avx512bf16>();
  }
  __builtin_unreachable();
}

}  // namespace sinew::kernels
