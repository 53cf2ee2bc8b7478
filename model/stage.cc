#include "model/stage.h"

#include <algorithm>
#include <utility>

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "model/linear.h"
#include "model/parallel.h"
#include "model/tensor.h"
#include "sched/base/check.h"

namespace sinew::model {

StageParts StageParts::one(const Config& config, const StageShape& stage, int microbatches) {
  sched::Held held;
  held.microbatches = microbatches;
  held.layers[static_cast<std::size_t>(sched::Recompute::kNone)] = microbatches * stage.layers;
  return {
      .stages = {stage},
      .recompute = std::vector(static_cast<std::size_t>(config.layers), sched::Recompute::kNone),
      .held = held};
}

template <typename T>
Stage<T>::Stage(const Config& config, StageParts parts, TensorRank tensor_rank,
                comm::Communicator* tensor, BatchShape batch, const Sharding& sharding,
                kernels::Threads threads, Memory& memory)
    : config_(config),
      parts_(std::move(parts)),
      tensor_rank_(tensor_rank),
      tensor_(tensor),
      block_shape_(config, batch.batch, batch.time, tensor_rank.world),
      threads_(threads),
      units_(flat_layout(config, parts_.stages, tensor_rank, sharding.multiple()), sharding,
             threads, memory.parameters, memory.gradients, memory.gathered),
      cuts_gradients_(sharding.cuts_gradients()) {
  CHECK_EQ(static_cast<std::int64_t>(parts_.recompute.size()), config.layers);
  CHECK_LE(batch.time, config.max_time);
  const std::int64_t rows = block_shape_.rows();
  const std::int64_t boundary = boundary_count();
  for (const auto kind :
       {sched::Recompute::kNone, sched::Recompute::kSelective, sched::Recompute::kFull}) {
    auto& layers = free_layers_[static_cast<std::size_t>(kind)];
    for (std::int64_t i = 0; i < parts_.held.of(kind); ++i)
      layers.push_back(BlockSaved<T>::allocate(block_shape_, kind, memory.activations));
  }
  for (std::int64_t i = 0; i < parts_.held.microbatches; ++i)
    free_outputs_.push_back(memory.activations.allocate<T>(boundary));
  slots_.resize(static_cast<std::size_t>(parts_.held.microbatches));
  // The buffers of a layer that keeps least serve those that keep more.
  for (const auto kind : {sched::Recompute::kFull, sched::Recompute::kSelective}) {
    if (parts_.held.of(kind) == 0) continue;
    shared_ = BlockSaved<T>::allocate_shared(block_shape_, kind, memory.workspace);
    break;
  }
  scratch_ = BlockScratch<T>::allocate(block_shape_, memory.workspace);
  if (!has_head()) return;
  vocabulary_slice_ = parameter("wte.weight").slice;
  norm_ = memory.workspace.allocate<T>(boundary);
  mean_ = memory.workspace.allocate<T>(rows);
  rstd_ = memory.workspace.allocate<T>(rows);
  logits_ = memory.workspace.allocate<T>(rows * logit_columns());
  row_stats_ = memory.workspace.allocate<T>(4 * rows);
  d_norm_ = memory.workspace.allocate<T>(boundary);
  d_output_ = memory.workspace.allocate<T>(boundary);
}

template <typename T>
int Stage<T>::open(std::size_t chunk) {
  const auto free =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.open; });
  CHECK(free != slots_.end());
  free->open = true;
  free->chunk = chunk;
  const StageShape& shape = parts_.stages[chunk];
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(shape.layers); ++layer) {
    auto& layers = free_layers_[static_cast<std::size_t>(kind_of(chunk, layer))];
    CHECK(!layers.empty());
    free->blocks.push_back(layers.back());
    layers.pop_back();
  }
  CHECK(!free_outputs_.empty());
  free->output = free_outputs_.back();
  free_outputs_.pop_back();
  return static_cast<int>(free - slots_.begin());
}

template <typename T>
void Stage<T>::close(int index) {
  Slot& slot = at(index);
  for (std::size_t layer = 0; layer < slot.blocks.size(); ++layer)
    free_layers_[static_cast<std::size_t>(kind_of(slot.chunk, layer))].push_back(
        slot.blocks[layer]);
  free_outputs_.push_back(slot.output);
  slot.blocks.clear();
  slot.open = false;
}

template <typename T>
typename Stage<T>::Slot& Stage<T>::at(int slot) {
  Slot& found = slots_[static_cast<std::size_t>(slot)];
  CHECK(found.open);
  return found;
}

template <typename T>
sched::Recompute Stage<T>::kind_of(std::size_t chunk, std::size_t layer) const {
  return parts_.recompute[static_cast<std::size_t>(parts_.stages[chunk].first_layer) + layer];
}

template <typename T>
const Parameter& Stage<T>::parameter(const char* name) const {
  const auto found = std::find_if(flat().parameters.begin(), flat().parameters.end(),
                                  [&](const Parameter& p) { return p.name == name; });
  CHECK(found != flat().parameters.end());
  return *found;
}

template <typename T>
std::size_t Stage<T>::unit_of(std::size_t chunk, std::size_t layer) const {
  const auto wanted = static_cast<std::size_t>(parts_.stages[chunk].first_layer) + layer;
  const auto found = std::find_if(flat().units.begin(), flat().units.end(), [&](const Unit& unit) {
    return unit.layer == static_cast<int>(wanted);
  });
  CHECK(found != flat().units.end());
  return static_cast<std::size_t>(found - flat().units.begin());
}

template <typename T>
std::size_t Stage<T>::unit_of(const Parameter& parameter) const {
  const auto found = std::find_if(flat().units.begin(), flat().units.end(), [&](const Unit& unit) {
    return parameter.offset < unit.begin + unit.count;
  });
  CHECK(found != flat().units.end());
  return static_cast<std::size_t>(found - flat().units.begin());
}

template <typename T>
BlockWeights<const T> Stage<T>::block_weights(std::size_t chunk, std::size_t layer) const {
  const Unit& unit = flat().units[unit_of(chunk, layer)];
  return BlockWeights<const T>::at(weights() + unit.begin, flat().parameters, unit.first);
}

template <typename T>
BlockWeights<T> Stage<T>::block_gradients(std::size_t unit) {
  return BlockWeights<T>::at(units_.gradient(unit), flat().parameters, flat().units[unit].first);
}

template <typename T>
void Stage<T>::prefetch_after(const Slot& slot, std::size_t layer, bool forward) {
  if (forward) {
    if (layer + 1 < slot.blocks.size()) units_.prefetch(unit_of(slot.chunk, layer + 1));
  } else if (layer > 0) {
    units_.prefetch(unit_of(slot.chunk, layer - 1));
  }
  units_.progress();
}

template <typename T>
double Stage<T>::forward(int slot_index, const Microbatch& microbatch, T loss_scale, Mode mode) {
  Slot& slot = at(slot_index);
  const StageShape& shape = parts_.stages[slot.chunk];
  if (shape.has_embedding) embed(slot, microbatch);
  for (std::size_t layer = 0; layer < slot.blocks.size(); ++layer) {
    BlockSaved<T> saved = slot.blocks[layer];
    saved.borrow(shared_, kind_of(slot.chunk, layer));
    T* out = layer + 1 == slot.blocks.size() ? slot.output : slot.blocks[layer + 1].x;
    const std::size_t unit = unit_of(slot.chunk, layer);
    const auto w =
        BlockWeights<const T>::at(units_.use(unit), flat().parameters, flat().units[unit].first);
    prefetch_after(slot, layer, true);
    block_forward<T>(block_shape_, w, saved, out, tensor_, threads_);
    units_.release(unit);
  }
  return shape.has_head ? head(slot, microbatch, loss_scale, mode) : 0;
}

// Vocabulary-parallel: ids of other ranks' rows give zeros, the sum over the tensor ranks completes
// them; the positions enter that sum once.
template <typename T>
void Stage<T>::embed(const Slot& slot, const Microbatch& microbatch) {
  const Parameter& table = parameter("wte.weight");
  const std::size_t table_unit = unit_of(table);
  const std::size_t position_unit = unit_of(parameter("wpe.weight"));
  const T* rows = units_.use(table_unit);
  const T* positions = units_.use(position_unit);
  kernels::embedding_forward<T>({.batch = block_shape_.batch,
                                 .time = block_shape_.time,
                                 .channels = block_shape_.channels,
                                 .first_row = table.slice.begin,
                                 .rows = table.slice.end - table.slice.begin},
                                microbatch.tokens, rows,
                                tensor_rank_.rank == 0 ? positions : nullptr, slot.blocks.front().x,
                                threads_);
  units_.release(table_unit);
  units_.release(position_unit);
  sum_over(tensor_, slot.blocks.front().x, boundary_count());
}

template <typename T>
double Stage<T>::head(Slot& slot, const Microbatch& microbatch, T loss_scale, Mode mode) {
  const std::size_t norm_unit = unit_of(parameter("ln_f.weight"));
  const std::size_t table_unit = unit_of(parameter("wte.weight"));
  const T* norm = units_.use(norm_unit);
  const T* table = units_.use(table_unit);
  const double loss = head_forward(slot, microbatch, norm, table);
  if (mode == Mode::kTrain) {
    head_backward(slot, microbatch, loss_scale, norm, table);
    units_.gradient_done(norm_unit, microbatch.last);
    units_.head_gradient_done(table_unit);
  }
  units_.release(norm_unit);
  units_.release(table_unit);
  return loss;
}

// norm: weight, then bias.
template <typename T>
double Stage<T>::head_forward(const Slot& slot, const Microbatch& microbatch, const T* norm,
                              const T* table) {
  const std::int64_t rows = block_shape_.rows();
  const std::int64_t c = block_shape_.channels;
  kernels::layer_norm_forward<T>({rows, c}, slot.output, norm, norm + c,
                                 static_cast<T>(kNormEpsilon), norm_, mean_, rstd_, threads_);
  // logits = norm table^T: the form of an input gradient with W = table^T seen as [C, columns].
  linear_backward_input<T>({rows, logit_columns(), c}, norm_, table, logits_, threads_);

  T* row_max = row_stats_;
  T* sum_exp = row_stats_ + rows;
  T* target_logit = sum_exp + rows;
  T* loss = target_logit + rows;
  const kernels::CrossEntropyShape entropy = entropy_shape();
  kernels::cross_entropy_max<T>(entropy, logits_, row_max, threads_);
  max_over(tensor_, row_max, rows);
  kernels::cross_entropy_sums<T>(entropy, logits_, microbatch.targets, row_max, sum_exp,
                                 target_logit, threads_);
  sum_over(tensor_, sum_exp, rows);
  sum_over(tensor_, target_logit, rows);
  kernels::cross_entropy_loss<T>(rows, microbatch.targets, sum_exp, target_logit, loss);
  double total = 0;
  for (std::int64_t i = 0; i < rows; ++i) total += static_cast<double>(loss[i]);
  return total;
}

template <typename T>
void Stage<T>::head_backward(Slot& slot, const Microbatch& microbatch, T loss_scale, const T* norm,
                             const T* table) {
  const std::int64_t rows = block_shape_.rows();
  const std::int64_t c = block_shape_.channels;
  const LinearShape shape{rows, logit_columns(), c};
  const T* row_max = row_stats_;
  const T* sum_exp = row_stats_ + rows;
  kernels::cross_entropy_backward<T>(entropy_shape(), logits_, microbatch.targets, row_max, sum_exp,
                                     loss_scale, threads_);
  T* d_table = units_.head_gradient(unit_of(parameter("wte.weight")));
  T* d_norm = units_.gradient(unit_of(parameter("ln_f.weight")));
  linear_forward<T>(shape, logits_, table, d_norm_, threads_);
  linear_backward_weight<T>(shape, logits_, norm_, d_table, threads_);
  sum_over(tensor_, d_norm_, rows * c);
  kernels::layer_norm_backward<T>({rows, c}, d_norm_, slot.output, norm, mean_, rstd_,
                                  kernels::Write::kAssign, d_output_, d_norm, d_norm + c, threads_);
  std::swap(slot.output, d_output_);
}

template <typename T>
kernels::CrossEntropyShape Stage<T>::entropy_shape() const {
  return {.rows = block_shape_.rows(),
          .columns = logit_columns(),
          .first_column = vocabulary_slice_.begin,
          .vocabulary = config_.vocabulary};
}

template <typename T>
void Stage<T>::backward(int slot_index, const Microbatch& microbatch, Weights weights) {
  Slot& slot = at(slot_index);
  if (cuts_gradients_) weights = Weights::kNow;
  for (std::size_t layer = slot.blocks.size(); layer-- > 0;)
    block_backward(slot, layer, microbatch, weights);
  if (weights == Weights::kNow) embedding_backward(slot, microbatch);
}

template <typename T>
void Stage<T>::block_backward(Slot& slot, std::size_t layer, const Microbatch& microbatch,
                              Weights weights) {
  const sched::Recompute kind = kind_of(slot.chunk, layer);
  const std::size_t unit = unit_of(slot.chunk, layer);
  const auto w =
      BlockWeights<const T>::at(units_.use(unit), flat().parameters, flat().units[unit].first);
  prefetch_after(slot, layer, false);
  const BlockWeights<T> d_w = block_gradients(unit);
  const T* d_out = output_gradient(slot, layer);
  BlockSaved<T> saved = slot.blocks[layer];
  saved.borrow(shared_, kind);
  if (kind == sched::Recompute::kFull)
    block_forward<T>(block_shape_, w, saved, scratch_.d_x, tensor_, threads_);
  if (kind == sched::Recompute::kSelective) block_recompute<T>(block_shape_, w, saved, threads_);
  block_backward_input<T>(block_shape_, w, saved, d_w, scratch_, d_out, tensor_, threads_);
  if (weights == Weights::kNow || kind != sched::Recompute::kNone)
    block_backward_weight<T>(block_shape_, saved, d_out, d_w, threads_);
  // Buffers were traded: each goes back to where it was borrowed from.
  slot.blocks[layer].x = saved.x;
  if (kind == sched::Recompute::kFull) {
    shared_ = saved;
  } else {
    slot.blocks[layer] = saved;
  }
  units_.release(unit);
  if (weights == Weights::kNow) units_.gradient_done(unit, microbatch.last);
}

template <typename T>
void Stage<T>::backward_weights(int slot_index, const Microbatch& microbatch) {
  if (cuts_gradients_) return;
  Slot& slot = at(slot_index);
  for (std::size_t layer = slot.blocks.size(); layer-- > 0;) {
    const std::size_t unit = unit_of(slot.chunk, layer);
    if (kind_of(slot.chunk, layer) == sched::Recompute::kNone)
      block_backward_weight<T>(block_shape_, slot.blocks[layer], output_gradient(slot, layer),
                               block_gradients(unit), threads_);
    units_.gradient_done(unit, microbatch.last);
    units_.progress();
  }
  embedding_backward(slot, microbatch);
}

template <typename T>
void Stage<T>::embedding_backward(const Slot& slot, const Microbatch& microbatch) {
  if (!parts_.stages[slot.chunk].has_embedding) return;
  const Parameter& table = parameter("wte.weight");
  const std::size_t table_unit = unit_of(table);
  const std::size_t position_unit = unit_of(parameter("wpe.weight"));
  kernels::embedding_backward<T>({.batch = block_shape_.batch,
                                  .time = block_shape_.time,
                                  .channels = block_shape_.channels,
                                  .first_row = table.slice.begin,
                                  .rows = table.slice.end - table.slice.begin},
                                 microbatch.tokens, slot.blocks.front().x,
                                 units_.gradient(table_unit), units_.gradient(position_unit),
                                 threads_);
  units_.gradient_done(table_unit, microbatch.last);
  units_.gradient_done(position_unit, microbatch.last);
}

template <typename T>
std::uint64_t Stage<T>::tied_fingerprint() const {
  const Parameter& table = parameter("wte.weight");
  const Piece held =
      units_.held()[unit_of(table)].within(table.offset, table.offset + table.slice.local_count());
  if (held.count <= 0) return 0;
  return fingerprint(weights() + held.weight_begin, sizeof(T), held.flat_begin - table.offset,
                     held.count);
}

template class Stage<float>;
template class Stage<double>;

}  // namespace sinew::model
