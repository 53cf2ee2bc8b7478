// The buffers of a layer: which there are, by family, recomputation and sequence parallelism.
#include <algorithm>

#include "model/block.h"
#include "sched/base/check.h"
#include "sched/plan/run_shape.h"

namespace sinew::model {

BlockShape::BlockShape(const Config& config, std::int64_t batch_count, std::int64_t time_count,
                       const TensorRank& tensor)
    : llama(config.is_llama()),
      sequence_parallel(tensor.sequence_parallel && tensor.world > 1),
      tensor_world(tensor.world),
      row_chunks(tensor.row_chunks),
      norm_epsilon(config.norm_epsilon),
      batch(batch_count),
      time(time_count),
      channels(config.channels),
      heads(config.heads / tensor.world),
      kv_heads(std::max<std::int64_t>(config.key_value_heads() / tensor.world, 1)),
      head_dim(config.head_dim()),
      hidden(config.hidden_units() / tensor.world) {
  CHECK_EQ(config.heads % tensor.world, 0);
  CHECK_EQ(config.hidden_units() % tensor.world, 0);
  if (sequence_parallel) CHECK_EQ(rows() % tensor.world, 0);
  CHECK_LE(row_chunks, sched::kRowChunksMost);
  CHECK_EQ(own_rows() % row_chunks, 0);
}

template <typename T>
BlockWeights<T> BlockWeights<T>::at(T* unit, const std::vector<Parameter>& parameters,
                                    std::size_t first, sched::Family family) {
  const std::int64_t begin = parameters[first].offset;
  const auto view = [&](std::size_t i) { return unit + (parameters[first + i].offset - begin); };
  if (family == sched::Family::kLlama) {
    CHECK_LE(first + 9, parameters.size());
    BlockWeights w{};
    w.ln1_weight = view(0);
    w.qkv_weight = view(1);
    w.out_weight = view(4);
    w.ln2_weight = view(5);
    w.up_weight = view(6);
    w.down_weight = view(8);
    return w;
  }
  CHECK_LE(first + 12, parameters.size());
  return {view(0), view(1), view(2), view(3), view(4),  view(5),
          view(6), view(7), view(8), view(9), view(10), view(11)};
}

namespace {

// Whether a layer under this kind of recomputation keeps what backward can compute again from its
// input alone, and what it can without a product of matrices.
bool keeps_matrices(sched::Recompute kind) { return kind != sched::Recompute::kFull; }
bool keeps_elementwise(sched::Recompute kind) { return kind == sched::Recompute::kNone; }

// Allocates those of the two groups that are asked for.
template <typename T>
BlockSaved<T> allocate_groups(const BlockShape& s, bool matrices, bool elementwise, Arena& arena) {
  const std::int64_t rows = s.rows();
  const std::int64_t own = s.own_rows();
  using W = kernels::Wide<T>;
  BlockSaved<T> saved{};
  if (matrices) {
    if (!s.llama) saved.mean1 = arena.allocate<W>(own);
    saved.rstd1 = arena.allocate<W>(own);
    saved.qkv = arena.allocate<T>(rows * s.qkv_channels());
    saved.attention = arena.allocate<T>(rows * s.attention_channels());
    saved.lse = arena.allocate<W>(rows * s.heads);
    saved.x2 = arena.allocate<T>(own * s.channels);
    if (!s.llama) saved.mean2 = arena.allocate<W>(own);
    saved.rstd2 = arena.allocate<W>(own);
    saved.up = arena.allocate<T>(rows * s.up_channels());
  }
  if (elementwise) {
    saved.ln1 = arena.allocate<T>(own * s.channels);
    saved.ln2 = arena.allocate<T>(own * s.channels);
    saved.gelu = arena.allocate<T>(rows * s.hidden);
  }
  return saved;
}

}  // namespace

template <typename T>
BlockSaved<T> BlockSaved<T>::allocate(const BlockShape& s, sched::Recompute kind, Arena& arena) {
  BlockSaved saved = allocate_groups<T>(s, keeps_matrices(kind), keeps_elementwise(kind), arena);
  saved.x = arena.allocate<T>(s.own_rows() * s.channels);
  return saved;
}

template <typename T>
BlockSaved<T> BlockSaved<T>::allocate_shared(const BlockShape& s, sched::Recompute kind,
                                             Arena& arena) {
  return allocate_groups<T>(s, !keeps_matrices(kind), !keeps_elementwise(kind), arena);
}

template <typename T>
void BlockSaved<T>::borrow(const BlockSaved& shared, sched::Recompute kind) {
  const BlockSaved own = *this;
  if (!keeps_matrices(kind)) {
    *this = shared;
    x = own.x;
  }
  if (!keeps_elementwise(kind)) {
    ln1 = shared.ln1;
    ln2 = shared.ln2;
    gelu = shared.gelu;
  }
}

template <typename T>
BlockScratch<T> BlockScratch<T>::allocate(const BlockShape& s, bool dropout, Arena& arena) {
  const std::int64_t own = s.own_rows() * s.channels;
  const std::int64_t whole = s.sequence_parallel ? s.rows() * s.channels : 0;
  BlockScratch scratch{};
  scratch.d_ln = arena.allocate<T>(own);
  scratch.d_x = arena.allocate<T>(own);
  scratch.d_x2 = arena.allocate<T>(own);
  scratch.d_hidden = arena.allocate<T>(s.rows() * s.hidden);
  scratch.d_qkv = arena.allocate<T>(s.rows() * s.qkv_channels());
  scratch.d_attention = arena.allocate<T>(s.rows() * s.attention_channels());
  scratch.d_branch = arena.allocate<T>(dropout ? own : 0);
  scratch.whole = arena.allocate<T>(whole);
  scratch.d_out_whole = arena.allocate<T>(whole);
  scratch.d_x2_whole = arena.allocate<T>(whole);
  return scratch;
}

#define SINEW_INSTANTIATE(T)             \
  template struct BlockWeights<T>;       \
  template struct BlockWeights<const T>; \
  template struct BlockSaved<T>;         \
  template struct BlockScratch<T>;
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::model
