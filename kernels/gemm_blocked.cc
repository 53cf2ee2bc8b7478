#include "kernels/gemm_blocked.h"

#include <algorithm>

#include "kernels/scratch.h"
#include "sched/base/partition.h"

namespace sinew::kernels {
namespace {

constexpr std::int64_t ceil_divide(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

struct Operands {
  float alpha;
  const float* a;
  const float* b;
  float beta;
  float* c;
};

// What is multiplied at a time: op(A)[m, k] op(B)[k, n].
struct Block {
  Part k{0, 0};
  Part m{0, 0};
  Part n{0, 0};
};

// One GEMM on the calling thread. Blocks run over k, within it over m, within it over n:
//   - A[m, k] is packed once per (k, m), panel by panel as the first columns need them, and stays
//   in
//     the third level (or the second, when m is small) while all columns pass by;
//   - B[k, n] is packed once per block into the second level and used by every row panel of A;
//   - one panel of A, read once per tile, stays in the first level while B's panels pass by.
// Sources are fetched ahead of their packing, one cache line per step of k, from inside the tiles:
// a tile reads the multipliers' operands from the caches and leaves the memory bus idle.
class BlockedGemm {
 public:
  BlockedGemm(const GemmKernels& kernels, const GemmShape& shape, const Operands& operands);
  void run();

 private:
  [[nodiscard]] std::int64_t block_count() const { return k_blocks_ * m_blocks_ * n_blocks_; }
  [[nodiscard]] Block block(std::int64_t index) const;
  [[nodiscard]] GemmSource a_at(const Block& block, std::int64_t row) const;
  [[nodiscard]] GemmSource b_at(const Block& block, std::int64_t column) const;
  [[nodiscard]] float* a_panel(const Block& block, const Part& rows) const {
    return a_packed_.get() + rows.offset * block.k.count;
  }
  // The panel of the block's columns [column, column + tile_columns).
  [[nodiscard]] float* b_panel(const Block& block, std::int64_t column) const {
    return b_packed_.get() + column * block.k.count;
  }
  void pack_a(const Block& block, const Part& rows) const;
  void multiply_block(const Block& block, const Block* next) const;
  void prepare_b(const Block& block, std::int64_t column, GemmTile& tile) const;
  [[nodiscard]] Prefetch choose_prefetch(const Block& block, const Block* next, std::int64_t row,
                                         std::int64_t tile_in_row,
                                         std::int64_t tile_in_block) const;

  const GemmKernels& kernels_;
  const GemmBlocking blocking_;
  const GemmShape shape_;
  const Operands operands_;
  const bool a_plain_;
  const bool b_plain_;
  const std::int64_t k_blocks_;
  const std::int64_t m_blocks_;
  const std::int64_t n_blocks_;
  Scratch<float> a_packed_;
  Scratch<float> b_packed_;
};

BlockedGemm::BlockedGemm(const GemmKernels& kernels, const GemmShape& shape,
                         const Operands& operands)
    : kernels_(kernels),
      blocking_(gemm_blocking(kernels, cpu())),
      shape_(shape),
      operands_(operands),
      a_plain_(shape.a_form == Form::kPlain),
      b_plain_(shape.b_form == Form::kPlain),
      k_blocks_(std::max<std::int64_t>(1, ceil_divide(shape.k, blocking_.depth))),
      m_blocks_(ceil_divide(shape.m, blocking_.rows)),
      n_blocks_(ceil_divide(shape.n, blocking_.columns)) {
  const std::int64_t depth = ceil_divide(shape.k, k_blocks_);
  const std::int64_t columns = std::min(
      blocking_.columns, ceil_divide(shape.n, kernels.tile_columns) * kernels.tile_columns);
  a_packed_ = allocate_scratch<float>(ceil_divide(shape.m, m_blocks_) * depth);
  b_packed_ = allocate_scratch<float>(columns * depth);
}

void BlockedGemm::run() {
  for (std::int64_t index = 0; index < block_count(); ++index) {
    const Block current = block(index);
    const bool last = index + 1 == block_count();
    const Block next = last ? Block{} : block(index + 1);
    multiply_block(current, last ? nullptr : &next);
  }
}

Block BlockedGemm::block(std::int64_t index) const {
  const std::int64_t column = index % n_blocks_ * blocking_.columns;
  return {partition(shape_.k, k_blocks_, index / n_blocks_ / m_blocks_),
          partition(shape_.m, m_blocks_, index / n_blocks_ % m_blocks_),
          {column, std::min(blocking_.columns, shape_.n - column)}};
}

GemmSource BlockedGemm::a_at(const Block& block, std::int64_t row) const {
  const std::int64_t stride = shape_.a_stride;
  return {a_plain_ ? operands_.a + row * stride + block.k.offset
                   : operands_.a + block.k.offset * stride + row,
          stride};
}

GemmSource BlockedGemm::b_at(const Block& block, std::int64_t column) const {
  const std::int64_t stride = shape_.b_stride;
  return {b_plain_ ? operands_.b + block.k.offset * stride + column
                   : operands_.b + column * stride + block.k.offset,
          stride};
}

void BlockedGemm::pack_a(const Block& block, const Part& rows) const {
  (a_plain_ ? kernels_.pack_a : kernels_.pack_a_transposed)(
      a_at(block, block.m.offset + rows.offset), rows.count, block.k.count, a_panel(block, rows));
}

void BlockedGemm::multiply_block(const Block& block, const Block* next) const {
  const std::int64_t width = kernels_.tile_columns;
  const std::int64_t row_panels = ceil_divide(block.m.count, kernels_.tile_rows);
  std::int64_t tile_in_block = 0;
  for (std::int64_t i = 0; i < row_panels; ++i) {
    const Part rows = partition(block.m.count, row_panels, i);
    const std::int64_t row = block.m.offset + rows.offset;
    if (block.n.offset == 0) pack_a(block, rows);
    for (std::int64_t column = 0; column < block.n.count; column += width, ++tile_in_block) {
      GemmTile tile{.rows = rows.count,
                    .columns = std::min(width, block.n.count - column),
                    .depth = block.k.count,
                    .alpha = operands_.alpha,
                    .beta = block.k.offset == 0 ? operands_.beta : 1.0F,
                    .a = a_panel(block, rows),
                    .a_step = rows.count,
                    .b = b_panel(block, column),
                    .b_step = width,
                    .c = operands_.c + row * shape_.c_stride + block.n.offset + column,
                    .c_stride = shape_.c_stride};
      if (i == 0) prepare_b(block, column, tile);
      tile.prefetch = choose_prefetch(block, next, row + rows.count, column / width, tile_in_block);
      kernels_.multiply(tile);
    }
  }
}

void BlockedGemm::prepare_b(const Block& block, std::int64_t column, GemmTile& tile) const {
  const GemmSource source = b_at(block, block.n.offset + column);
  float* panel = b_panel(block, column);
  if (!b_plain_) {
    kernels_.pack_b_transposed(source, tile.columns, tile.depth, panel);
  } else if (tile.columns < kernels_.tile_columns) {
    kernels_.pack_b(source, tile.columns, tile.depth, panel);
  } else {
    tile.b = source.data;
    tile.b_step = source.stride;
    tile.b_packed = panel;
  }
}

// Lines of `source` in 16 rows along k, or 16 floats of every row across k.
Prefetch prefetch_source(const GemmSource& source, bool along_k) {
  const std::int64_t row_bytes = source.stride * 4;
  return {reinterpret_cast<std::uintptr_t>(source.data), row_bytes, along_k ? 64 : 16 * row_bytes};
}

Prefetch BlockedGemm::choose_prefetch(const Block& block, const Block* next, std::int64_t row,
                                      std::int64_t tile_in_row, std::int64_t tile_in_block) const {
  if (block.n.offset == 0 && tile_in_row == 0) return prefetch_source(a_at(block, row), a_plain_);
  const std::int64_t column = tile_in_block * 16;
  if (next != nullptr && column < next->n.count)
    return prefetch_source(b_at(*next, next->n.offset + column), !b_plain_);
  return {reinterpret_cast<std::uintptr_t>(operands_.c), 0, 0};
}

}  // namespace

// depth: a tile reads and writes its part of C once per block of k. On the machine the kernels were
// measured on (one AVX-512 multiply-add a cycle) a 14 x 32 tile multiplies for 28 cycles per step
// and spends about 150 around them, so 512 steps keep the loss near 1%; a panel of B must still be
// small beside the second level: 512 x 32 floats are 64 KiB.
//
// columns: a quarter of the second level for packed B, a quarter for the next block of B on its
// way, the rest for A's panels, C, and whatever else passes through.
//
// rows: an eighth of the third level for packed A, since other cores share it. B is packed again
// for every block of rows: one element in 2 * rows operations.
GemmBlocking gemm_blocking(const GemmKernels& kernels, const Cpu& processor) {
  constexpr std::int64_t kDepth = 512;
  constexpr std::int64_t kRowsAtLeast = 256;
  const std::int64_t columns = processor.l2_bytes / 4 / (kDepth * 4);
  return {
      .depth = kDepth,
      .rows = std::max(kRowsAtLeast, processor.l3_bytes / 8 / (kDepth * 4)),
      .columns = std::max<std::int64_t>(1, columns / kernels.tile_columns) * kernels.tile_columns};
}

void gemm_blocked(const GemmKernels& kernels, const GemmShape& shape, float alpha, const float* a,
                  const float* b, float beta, float* c) {
  if (shape.m == 0 || shape.n == 0) return;
  BlockedGemm(kernels, shape, {alpha, a, b, beta, c}).run();
}

template <const GemmKernels* (*kKernels)()>
const GemmFunctions<float>* functions_of() {
  if (kKernels() == nullptr) return nullptr;
  static constexpr GemmFunctions<float> kFunctions = {
      [](const GemmShape& shape, float alpha, const float* a, const float* b, float beta,
         float* c) { gemm_blocked(*kKernels(), shape, alpha, a, b, beta, c); }};
  return &kFunctions;
}

const GemmFunctions<float>* gemm_blocked_f32(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return functions_of<gemm_kernels_portable>();
    case Isa::kAvx2:
      return functions_of<gemm_kernels_avx2>();
    case Isa::kAvx512:
      return functions_of<gemm_kernels_avx512>();
    case Isa::kAvx512Bf16:
      return nullptr;
  }
  __builtin_unreachable();
}

}  // namespace sinew::kernels
