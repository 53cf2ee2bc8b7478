#include "model/stage.h"

#include <algorithm>
#include <utility>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
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
                comm::Communicator* tensor, BatchShape batch, std::int64_t multiple,
                kernels::Threads threads, Memory& memory)
    : config_(config),
      parts_(std::move(parts)),
      tensor_rank_(tensor_rank),
      tensor_(tensor),
      block_shape_(config, batch.batch, batch.time, tensor_rank.world),
      threads_(threads),
      flat_(flat_layout(config, parts_.stages, tensor_rank, multiple)) {
  CHECK_EQ(static_cast<std::int64_t>(parts_.recompute.size()), config.layers);
  CHECK_LE(batch.time, config.max_time);
  weights_ = memory.parameters.allocate<T>(flat_.count);
  gradients_ = memory.gradients.allocate<T>(flat_.count);

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
  if (has_embedding()) d_tied_ = memory.workspace.allocate<T>(vocabulary_slice_.local_count());
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
  const auto found = std::find_if(flat_.parameters.begin(), flat_.parameters.end(),
                                  [&](const Parameter& p) { return p.name == name; });
  CHECK(found != flat_.parameters.end());
  return *found;
}

template <typename T>
std::size_t Stage<T>::first_parameter(std::size_t chunk, std::size_t layer) const {
  const auto wanted = static_cast<std::size_t>(parts_.stages[chunk].first_layer) + layer;
  const auto found = std::find_if(flat_.units.begin(), flat_.units.end(), [&](const Unit& unit) {
    return unit.layer == static_cast<int>(wanted);
  });
  CHECK(found != flat_.units.end());
  return found->first;
}

template <typename T>
BlockWeights<const T> Stage<T>::block_weights(std::size_t chunk, std::size_t layer) const {
  return BlockWeights<const T>::at(weights_, flat_.parameters, first_parameter(chunk, layer));
}

template <typename T>
BlockWeights<T> Stage<T>::block_gradients(std::size_t chunk, std::size_t layer) {
  return BlockWeights<T>::at(gradients_, flat_.parameters, first_parameter(chunk, layer));
}

template <typename T>
void Stage<T>::zero_gradients() {
  std::fill_n(gradients_, flat_.count, T{0});
  if (d_tied_ != nullptr) std::fill_n(d_tied_, vocabulary_slice_.local_count(), T{0});
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
    block_forward<T>(block_shape_, block_weights(slot.chunk, layer), saved, out, tensor_, threads_);
  }
  return shape.has_head ? head(slot, microbatch, loss_scale, mode) : 0;
}

// Vocabulary-parallel: ids of other ranks' rows give zeros, the sum over the tensor ranks completes
// them; the positions enter that sum once.
template <typename T>
void Stage<T>::embed(const Slot& slot, const Microbatch& microbatch) {
  const Parameter& table = parameter("wte.weight");
  const T* positions = tensor_rank_.rank == 0 ? weight("wpe.weight") : nullptr;
  kernels::embedding_forward<T>({.batch = block_shape_.batch,
                                 .time = block_shape_.time,
                                 .channels = block_shape_.channels,
                                 .first_row = table.slice.begin,
                                 .rows = table.slice.end - table.slice.begin},
                                microbatch.tokens, weights_ + table.offset, positions,
                                slot.blocks.front().x, threads_);
  sum_over(tensor_, slot.blocks.front().x, boundary_count());
}

template <typename T>
double Stage<T>::head(Slot& slot, const Microbatch& microbatch, T loss_scale, Mode mode) {
  const std::int64_t rows = block_shape_.rows();
  const std::int64_t c = block_shape_.channels;
  const std::int64_t columns = logit_columns();
  const Parameter& norm_weight = parameter("ln_f.weight");
  const Parameter& norm_bias = parameter("ln_f.bias");
  const T* table = weight("wte.weight");
  kernels::layer_norm_forward<T>({rows, c}, slot.output, weights_ + norm_weight.offset,
                                 weights_ + norm_bias.offset, static_cast<T>(kNormEpsilon), norm_,
                                 mean_, rstd_, threads_);
  // logits = norm table^T: the form of an input gradient with W = table^T seen as [C, columns].
  linear_backward_input<T>({rows, columns, c}, norm_, table, logits_, threads_);

  T* row_max = row_stats_;
  T* sum_exp = row_stats_ + rows;
  T* target_logit = sum_exp + rows;
  T* loss = target_logit + rows;
  const kernels::CrossEntropyShape entropy{.rows = rows,
                                           .columns = columns,
                                           .first_column = vocabulary_slice_.begin,
                                           .vocabulary = config_.vocabulary};
  kernels::cross_entropy_max<T>(entropy, logits_, row_max, threads_);
  max_over(tensor_, row_max, rows);
  kernels::cross_entropy_sums<T>(entropy, logits_, microbatch.targets, row_max, sum_exp,
                                 target_logit, threads_);
  sum_over(tensor_, sum_exp, rows);
  sum_over(tensor_, target_logit, rows);
  kernels::cross_entropy_loss<T>(rows, microbatch.targets, sum_exp, target_logit, loss);
  double total = 0;
  for (std::int64_t i = 0; i < rows; ++i) total += static_cast<double>(loss[i]);
  if (mode == Mode::kEvaluate) return total;

  kernels::cross_entropy_backward<T>(entropy, logits_, microbatch.targets, row_max, sum_exp,
                                     loss_scale, threads_);
  T* d_table = d_tied_ != nullptr ? d_tied_ : gradients_ + parameter("wte.weight").offset;
  linear_forward<T>({rows, columns, c}, logits_, table, d_norm_, threads_);
  linear_backward_weight<T>({rows, columns, c}, logits_, norm_, d_table, threads_);
  sum_over(tensor_, d_norm_, rows * c);
  kernels::layer_norm_backward<T>({rows, c}, d_norm_, slot.output, weights_ + norm_weight.offset,
                                  mean_, rstd_, kernels::Write::kAssign, d_output_,
                                  gradients_ + norm_weight.offset, gradients_ + norm_bias.offset,
                                  threads_);
  std::swap(slot.output, d_output_);
  return total;
}

template <typename T>
void Stage<T>::backward(int slot_index, const Microbatch& microbatch, Weights weights) {
  Slot& slot = at(slot_index);
  for (std::size_t layer = slot.blocks.size(); layer-- > 0;) block_backward(slot, layer, weights);
  if (weights == Weights::kNow) embedding_backward(slot, microbatch);
}

template <typename T>
void Stage<T>::block_backward(Slot& slot, std::size_t layer, Weights weights) {
  const sched::Recompute kind = kind_of(slot.chunk, layer);
  const BlockWeights<const T> w = block_weights(slot.chunk, layer);
  const BlockWeights<T> d_w = block_gradients(slot.chunk, layer);
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
}

template <typename T>
void Stage<T>::backward_weights(int slot_index, const Microbatch& microbatch) {
  Slot& slot = at(slot_index);
  for (std::size_t layer = slot.blocks.size(); layer-- > 0;) {
    if (kind_of(slot.chunk, layer) != sched::Recompute::kNone) continue;
    block_backward_weight<T>(block_shape_, slot.blocks[layer], output_gradient(slot, layer),
                             block_gradients(slot.chunk, layer), threads_);
  }
  embedding_backward(slot, microbatch);
}

template <typename T>
void Stage<T>::embedding_backward(const Slot& slot, const Microbatch& microbatch) {
  if (!parts_.stages[slot.chunk].has_embedding) return;
  const Parameter& table = parameter("wte.weight");
  kernels::embedding_backward<T>({.batch = block_shape_.batch,
                                  .time = block_shape_.time,
                                  .channels = block_shape_.channels,
                                  .first_row = table.slice.begin,
                                  .rows = table.slice.end - table.slice.begin},
                                 microbatch.tokens, slot.blocks.front().x,
                                 gradients_ + table.offset,
                                 gradients_ + parameter("wpe.weight").offset, threads_);
}

template <typename T>
void Stage<T>::fold_tied_gradient() {
  if (d_tied_ == nullptr) return;
  kernels::add(gradients_ + parameter("wte.weight").offset, static_cast<const T*>(d_tied_),
               vocabulary_slice_.local_count(), threads_);
}

template <typename T>
std::uint64_t Stage<T>::tied_fingerprint() const {
  const Parameter& table = parameter("wte.weight");
  return fingerprint(weights_ + table.offset, sizeof(T), 0, table.slice.local_count());
}

template class Stage<float>;
template class Stage<double>;

}  // namespace sinew::model
