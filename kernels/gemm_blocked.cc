#include "kernels/gemm_blocked.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/gemm_epilogue.h"
#include "kernels/scratch.h"
#include "sched/base/check.h"
#include "sched/base/partition.h"

namespace sinew::kernels {
namespace {

// What is multiplied at a time: op(A)[m, k] op(B)[k, n]. k counts words.
struct Block {
  Part k{0, 0};
  Part m{0, 0};
  Part n{0, 0};
  std::int64_t chunk = 0;  // the first column of the chunk that n lies in
  bool is_last_k = false;
};

// The cut of k into passes over C: the same for every product with this k.
struct Passes {
  Passes(std::int64_t k, int word_elements, std::int64_t depth)
      : words(ceil_divide(k, word_elements)),
        count(std::max<std::int64_t>(1, ceil_divide(words, depth))) {}
  [[nodiscard]] Part pass(std::int64_t i) const { return partition(words, count, i); }
  std::int64_t words;
  std::int64_t count;
};

// One GEMM on the calling thread. Blocks run over m, chunks of columns, k and n, in this order:
//   - A[m, k] is packed once per pass and chunk, panel by panel as the first columns need them, and
//     stays in the third level (or the second, when m is small) while the chunk's columns pass by;
//   - B[k, n] is packed once per block into the second level and used by every row panel of A;
//   - one panel of A, read once per tile, stays in the first level while B's panels pass by.
// Sources are fetched ahead of their packing, one cache line per step of k, from inside the tiles:
// a tile reads the multipliers' operands from the caches and leaves the memory bus idle.
//
// An f32 C holds its partial sums between the passes, and one chunk is the whole of n. A bf16 C
// cannot: its sums stand in a panel of rows when there is one pass, else in a chunk of columns.
template <typename In, typename Out>
class BlockedGemm {
 public:
  BlockedGemm(const GemmKernels<In>& kernels, const GemmCall<In, Out>& call,
              const PackedColumns& packed);
  void run();

 private:
  // Columns of the next block's B that a tile fetches, some in each of the last tiles of a block.
  struct NextB {
    const Block* block = nullptr;  // none when null
    std::int64_t columns_per_tile = 0;
    std::int64_t column = 0;  // from which on; before the tiles that fetch it is negative
  };

  static constexpr bool kSumsInC = std::is_same_v<Out, float>;
  static constexpr std::int64_t kLineElements = 64 / sizeof(In);
  static constexpr std::int64_t kPanelsAtATime = kLineElements / 2;  // of a transposed A

  void list_blocks();
  [[nodiscard]] GemmSource<In> a_at(const Block& block, std::int64_t row) const;
  [[nodiscard]] GemmSource<In> b_at(const Block& block, std::int64_t column) const;
  [[nodiscard]] std::int64_t elements(const Block& block) const;
  [[nodiscard]] float* a_panel(const Block& block, const Part& rows) const {
    return a_packed_.get() + rows.offset * block.k.count;
  }
  [[nodiscard]] Part row_panel(const Block& block, std::int64_t i) const {
    return partition(block.m.count, row_panels(block), i);
  }
  [[nodiscard]] std::int64_t row_panels(const Block& block) const {
    return ceil_divide(block.m.count, kernels_.tile_rows);
  }
  void pack_a(const Block& block, std::int64_t i) const;
  void pack_a_panels(const Block& block, std::int64_t first, std::int64_t last) const;
  void multiply_block(const Block& block, const Block* next) const;
  void place_b(const Block& block, std::int64_t column, bool is_first, GemmTile<In>& tile) const;
  void place_sums(const Block& block, const Part& rows, std::int64_t column,
                  GemmTile<In>& tile) const;
  void finish(const Block& block, const Part& rows) const;
  [[nodiscard]] NextB find_next_b(const Block& block, const Block* next) const;
  [[nodiscard]] Prefetch choose_prefetch(const Block& block, const NextB& next_b,
                                         std::int64_t next_row, bool is_first_in_row) const;

  const GemmKernels<In>& kernels_;
  const GemmCall<In, Out>& call_;
  const GemmShape& shape_;
  const PackedColumns packed_;
  const GemmBlocking blocking_;
  const bool a_plain_;
  const bool b_plain_;
  const bool has_epilogue_;
  const Passes passes_;
  std::int64_t m_blocks_;
  std::int64_t chunk_;
  std::vector<Block> blocks_;
  Scratch<float> a_packed_;
  Scratch<float> b_packed_;
  Scratch<float> sums_;
};

template <typename T>
bool is_trivial(const Epilogue<T>& e) {
  return e.bias == nullptr && e.activation == Activation::kNone && e.pre.data == nullptr &&
         e.factor.data == nullptr && e.residual.data == nullptr;
}

template <typename In, typename Out>
BlockedGemm<In, Out>::BlockedGemm(const GemmKernels<In>& kernels, const GemmCall<In, Out>& call,
                                  const PackedColumns& packed)
    : kernels_(kernels),
      call_(call),
      shape_(call.shape),
      packed_(packed),
      blocking_(gemm_blocking(kernels.tile_columns,
                              ceil_divide(call.shape.k, kernels.word_elements), cpu())),
      a_plain_(shape_.a_form == Form::kPlain),
      b_plain_(shape_.b_form == Form::kPlain),
      has_epilogue_(!kSumsInC || !is_trivial(call.epilogue)),
      passes_(shape_.k, static_cast<int>(kernels.word_elements), blocking_.depth),
      m_blocks_(ceil_divide(shape_.m, blocking_.rows)),
      chunk_(kSumsInC || passes_.count == 1 ? shape_.n : std::min(shape_.n, blocking_.chunk)) {
  const std::int64_t depth = ceil_divide(passes_.words, passes_.count);
  const std::int64_t rows = ceil_divide(shape_.m, m_blocks_);
  a_packed_ = allocate_scratch<float>(rows * depth);
  const std::int64_t columns =
      std::min(blocking_.columns, round_up(shape_.n, kernels.tile_columns));
  if (packed.data == nullptr) b_packed_ = allocate_scratch<float>(columns * depth);
  if (!kSumsInC)
    sums_ = allocate_scratch<float>(passes_.count == 1 ? kernels.tile_rows * blocking_.columns
                                                       : rows * chunk_);
  list_blocks();
}

template <typename In, typename Out>
void BlockedGemm<In, Out>::list_blocks() {
  for (std::int64_t m = 0; m < m_blocks_; ++m)
    for (std::int64_t chunk = 0; chunk < shape_.n; chunk += chunk_)
      for (std::int64_t pass = 0; pass < passes_.count; ++pass) {
        const std::int64_t end = std::min(chunk + chunk_, shape_.n);
        for (std::int64_t n = chunk; n < end; n += blocking_.columns)
          blocks_.push_back({passes_.pass(pass),
                             partition(shape_.m, m_blocks_, m),
                             {n, std::min(blocking_.columns, end - n)},
                             chunk,
                             pass + 1 == passes_.count});
      }
}

template <typename In, typename Out>
void BlockedGemm<In, Out>::run() {
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    multiply_block(blocks_[i], i + 1 < blocks_.size() ? &blocks_[i + 1] : nullptr);
}

template <typename In, typename Out>
std::int64_t BlockedGemm<In, Out>::elements(const Block& block) const {
  return std::min(block.k.count * kernels_.word_elements,
                  shape_.k - block.k.offset * kernels_.word_elements);
}

template <typename In, typename Out>
GemmSource<In> BlockedGemm<In, Out>::a_at(const Block& block, std::int64_t row) const {
  const std::int64_t stride = shape_.a_stride;
  const std::int64_t k = block.k.offset * kernels_.word_elements;
  return {a_plain_ ? call_.a + row * stride + k : call_.a + k * stride + row, stride};
}

template <typename In, typename Out>
GemmSource<In> BlockedGemm<In, Out>::b_at(const Block& block, std::int64_t column) const {
  const std::int64_t stride = shape_.b_stride;
  const std::int64_t k = block.k.offset * kernels_.word_elements;
  return {b_plain_ ? call_.b + k * stride + column : call_.b + column * stride + k, stride};
}

// Panel i, and where A is stored transposed also those behind it that share its cache lines.
template <typename In, typename Out>
void BlockedGemm<In, Out>::pack_a(const Block& block, std::int64_t i) const {
  if (a_plain_) {
    const Part rows = row_panel(block, i);
    kernels_.pack_a(a_at(block, block.m.offset + rows.offset), rows.count, elements(block),
                    a_panel(block, rows));
    return;
  }
  if (i % kPanelsAtATime == 0)
    pack_a_panels(block, i, std::min(i + kPanelsAtATime, row_panels(block)));
}

// Panels [first, last) of a transposed A. A panel is narrower than a cache line, and rows of A
// often lie a multiple of the page size apart, so that of a whole column of lines few survive in
// any level until the next panel needs them. Hence a few rows of A at a time, for all panels, the
// next ones on their way meanwhile.
template <typename In, typename Out>
void BlockedGemm<In, Out>::pack_a_panels(const Block& block, std::int64_t first,
                                         std::int64_t last) const {
  constexpr std::int64_t kRowsAtATime = 8;
  Part panels[kPanelsAtATime];
  for (std::int64_t i = first; i < last; ++i) panels[i - first] = row_panel(block, i);
  const std::int64_t all = elements(block);
  const std::int64_t begin = panels[0].offset;
  const Part& last_panel = panels[last - first - 1];
  const std::int64_t end = last_panel.offset + last_panel.count;
  const GemmSource<In> source = a_at(block, block.m.offset);
  for (std::int64_t k = 0; k < all; k += kRowsAtATime) {
    for (std::int64_t row = k + kRowsAtATime; row < std::min(k + 2 * kRowsAtATime, all); ++row)
      for (std::int64_t column = begin; column < end; column += kLineElements)
        __builtin_prefetch(source.data + row * source.stride + column);
    for (std::int64_t i = 0; i < last - first; ++i) {
      const Part& rows = panels[i];
      kernels_.pack_a_transposed({source.data + k * source.stride + rows.offset, source.stride},
                                 rows.count, std::min(kRowsAtATime, all - k),
                                 a_panel(block, rows) + k / kernels_.word_elements * rows.count);
    }
  }
}

template <typename In, typename Out>
void BlockedGemm<In, Out>::multiply_block(const Block& block, const Block* next) const {
  const std::int64_t width = kernels_.tile_columns;
  // Nothing is divided inside the loop over tiles: a short one takes some 1500 cycles, a
  // division 20.
  const std::int64_t panels = row_panels(block);
  NextB next_b = find_next_b(block, next);
  for (std::int64_t i = 0; i < panels; ++i) {
    const Part rows = row_panel(block, i);
    const std::int64_t next_row = block.m.offset + rows.offset + rows.count;
    if (block.n.offset == block.chunk) pack_a(block, i);
    for (std::int64_t column = 0; column < block.n.count; column += width) {
      GemmTile<In> tile{.rows = rows.count,
                        .columns = std::min(width, block.n.count - column),
                        .depth = block.k.count,
                        .alpha = call_.alpha,
                        .a = a_panel(block, rows),
                        .a_step = rows.count};
      place_b(block, column, i == 0, tile);
      place_sums(block, rows, column, tile);
      tile.prefetch = choose_prefetch(block, next_b, next_row, column == 0);
      next_b.column += next_b.columns_per_tile;
      kernels_.multiply(tile);
    }
    if (has_epilogue_ && block.is_last_k) finish(block, rows);
  }
}

template <typename In, typename Out>
void BlockedGemm<In, Out>::place_b(const Block& block, std::int64_t column, bool is_first,
                                   GemmTile<In>& tile) const {
  if (packed_.data != nullptr) {
    const std::int64_t panel = packed_.first + block.n.offset + column;
    tile.b = static_cast<const float*>(packed_.data) +
             block.k.offset * round_up(packed_.columns, kernels_.tile_columns) +
             panel * block.k.count;
    return;
  }
  float* panel = b_packed_.get() + column * block.k.count;
  tile.b = panel;
  if (!is_first) return;
  const GemmSource<In> source = b_at(block, block.n.offset + column);
  const bool is_whole = tile.columns == kernels_.tile_columns &&
                        elements(block) == block.k.count * kernels_.word_elements;
  if (!b_plain_) {
    kernels_.pack_b_transposed(source, tile.columns, elements(block), panel);
  } else if (!is_whole) {
    kernels_.pack_b(source, tile.columns, elements(block), panel);
  } else {
    tile.unpacked = source;
    tile.b_packed = panel;
  }
}

template <typename In, typename Out>
void BlockedGemm<In, Out>::place_sums(const Block& block, const Part& rows, std::int64_t column,
                                      GemmTile<In>& tile) const {
  tile.beta = block.k.offset == 0 ? 0.0F : 1.0F;
  const std::int64_t row = block.m.offset + rows.offset;
  if constexpr (kSumsInC) {
    if (block.k.offset == 0) tile.beta = call_.beta;
    tile.c = call_.c + row * shape_.c_stride + block.n.offset + column;
    tile.c_stride = shape_.c_stride;
  } else if (passes_.count == 1) {
    tile.c = sums_.get() + column;
    tile.c_stride = blocking_.columns;
  } else {
    tile.c = sums_.get() + rows.offset * chunk_ + block.n.offset - block.chunk + column;
    tile.c_stride = chunk_;
  }
}

template <typename In, typename Out>
void BlockedGemm<In, Out>::finish(const Block& block, const Part& rows) const {
  const std::int64_t row = block.m.offset + rows.offset;
  GemmTile<In> place;
  place_sums(block, rows, 0, place);
  const GemmFinish<Out> done{.rows = rows.count,
                             .columns = block.n.count,
                             .sums = place.c,
                             .sums_stride = place.c_stride,
                             .beta = kSumsInC ? 0.0F : call_.beta,
                             .c = call_.c + row * shape_.c_stride + block.n.offset,
                             .c_stride = shape_.c_stride,
                             .epilogue = moved(call_.epilogue, row, block.n.offset)};
  if constexpr (std::is_same_v<In, Out>)
    kernels_.finish(done);
  else
    kernels_.finish_wide(done);
}

// The lines that hold 16 words of `source`: of 16 rows stored along k, or of every row of k.
template <typename In>
Prefetch prefetch_source(const GemmSource<In>& source, bool along_k) {
  const std::int64_t row_bytes = source.stride * static_cast<std::int64_t>(sizeof(In));
  return {reinterpret_cast<std::uintptr_t>(source.data), row_bytes, along_k ? 64 : 16 * row_bytes};
}

template <typename In, typename Out>
auto BlockedGemm<In, Out>::find_next_b(const Block& block, const Block* next) const -> NextB {
  if (next == nullptr || packed_.data != nullptr) return {};
  // In the last tiles: what came earlier A's panels would have displaced from the second level.
  const std::int64_t columns_per_tile = b_plain_ ? kLineElements : 16;
  const std::int64_t tiles = row_panels(block) * ceil_divide(block.n.count, kernels_.tile_columns);
  const std::int64_t tiles_needed = ceil_divide(next->n.count, columns_per_tile);
  return {next, columns_per_tile,
          std::min<std::int64_t>(0, tiles_needed - tiles) * columns_per_tile};
}

template <typename In, typename Out>
Prefetch BlockedGemm<In, Out>::choose_prefetch(const Block& block, const NextB& next_b,
                                               std::int64_t next_row, bool is_first_in_row) const {
  if (a_plain_ && block.n.offset == block.chunk && is_first_in_row &&
      next_row < block.m.offset + block.m.count)
    return prefetch_source(a_at(block, next_row), true);
  const Block* next = next_b.block;
  if (next == nullptr || next_b.column < 0 || next_b.column >= next->n.count) return {};
  return prefetch_source(b_at(*next, next->n.offset + next_b.column), !b_plain_);
}

}  // namespace

// depth: a tile reads and writes its part of C once per pass. On the machine the kernels were
// measured on (one AVX-512 multiply-add a cycle) a 14 x 32 tile multiplies for 28 cycles per step
// and spends about 150 around them, C of later passes coming from further away than that; with 1024
// steps the inner dimension of most layers is one or two passes, 1 to 2 % faster than with 512. A
// panel of B, 1024 x 32 words or 128 KiB, is still small beside the second level; panels of A and B
// pass through the first level in order, which the processor fetches ahead by itself.
//
// columns: a quarter of the second level for packed B, a quarter for the next block of B on its
// way, the rest for A's panels, C, and whatever else passes through. A's panels come from the third
// level once for every block of columns, so that a short k takes more of them.
//
// rows: an eighth of the third level for packed A, since other cores share it. B is packed again
// for every block of rows: one element in 2 * rows operations.
//
// chunk: the sums of a block of rows in another eighth of the third level. A is packed again for
// every chunk: one element in 2 * chunk operations.
GemmBlocking gemm_blocking(std::int64_t tile_columns, std::int64_t words, const Cpu& processor) {
  constexpr std::int64_t kDepth = 1024;
  constexpr std::int64_t kDepthOfColumns = 256;  // at least: sums of a bf16 C take room as well
  constexpr std::int64_t kRowsAtLeast = 128;
  const std::int64_t passes = std::max<std::int64_t>(1, ceil_divide(words, kDepth));
  const std::int64_t depth = std::max(kDepthOfColumns, ceil_divide(words, passes));
  const std::int64_t columns =
      std::max<std::int64_t>(1, processor.l2_bytes / 4 / (depth * 4) / tile_columns) * tile_columns;
  const std::int64_t rows = std::max(kRowsAtLeast, processor.l3_bytes / 8 / (kDepth * 4));
  return {.depth = kDepth,
          .rows = rows,
          .columns = columns,
          .chunk = round_up(std::max(columns, processor.l3_bytes / 8 / (rows * 4)), columns)};
}

template <typename In, typename Out>
void gemm_blocked(const GemmKernels<In>& kernels, const GemmCall<In, Out>& call,
                  const PackedColumns& packed) {
  if (call.shape.m == 0 || call.shape.n == 0) return;
  CHECK_EQ(packed.first % kernels.tile_columns, 0);
  BlockedGemm<In, Out>(kernels, call, packed).run();
}

template void gemm_blocked(const GemmKernels<float>&, const GemmCall<float, float>&,
                           const PackedColumns&);
template void gemm_blocked(const GemmKernels<bf16>&, const GemmCall<bf16, bf16>&,
                           const PackedColumns&);
template void gemm_blocked(const GemmKernels<bf16>&, const GemmCall<bf16, float>&,
                           const PackedColumns&);

}  // namespace sinew::kernels
