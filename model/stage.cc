#include "model/stage.h"

#include <algorithm>
#include <utility>

#include "kernels/accelerator.h"
#include "kernels/elementwise.h"
#include "kernels/rope.h"
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
                kernels::Threads threads, Memory& memory, const StageOptions& options)
    : config_(config),
      names_(end_names(config)),
      parts_(std::move(parts)),
      options_(options),
      batch_(batch),
      pieces_(sched::sequence_pieces(options.context_mode, batch.time,
                                     options.context == nullptr ? 1 : options.context->world(),
                                     options.context == nullptr ? 0 : options.context->rank())),
      tensor_rank_(tensor_rank),
      tensor_(tensor),
      block_shape_(config, batch.batch,
                   batch.time / (options.context == nullptr ? 1 : options.context->world()),
                   tensor_rank),
      threads_(threads),
      units_(flat_layout(config, parts_.stages, tensor_rank, sharding.multiple()), sharding,
             threads, memory.parameters, memory.gradients, memory.gathered),
      weights_now_(sharding.uses_working() || block_shape_.sequence_parallel) {
  CHECK_EQ(static_cast<std::int64_t>(parts_.recompute.size()), config.layers);
  CHECK_LE(batch.time, config.max_time);
  allocate_layers(memory);
  attention_ = make_attention<T>(block_shape_.attention_shape(), options.context_mode,
                                 options.context, memory.workspace);
  prepare_positions(memory);
  if (has_head()) allocate_ends(memory);
}

template <typename T>
void Stage<T>::allocate_layers(Memory& memory) {
  for (const auto kind :
       {sched::Recompute::kNone, sched::Recompute::kSelective, sched::Recompute::kFull}) {
    auto& layers = free_layers_[static_cast<std::size_t>(kind)];
    for (std::int64_t i = 0; i < parts_.held.of(kind); ++i)
      layers.push_back(BlockSaved<T>::allocate(block_shape_, kind, memory.activations));
  }
  for (std::int64_t i = 0; i < parts_.held.microbatches; ++i)
    free_outputs_.push_back(memory.activations.allocate<T>(boundary_count()));
  slots_.resize(static_cast<std::size_t>(parts_.held.microbatches));
  // The buffers of a layer that keeps least serve those that keep more.
  for (const auto kind : {sched::Recompute::kFull, sched::Recompute::kSelective}) {
    if (parts_.held.of(kind) == 0) continue;
    shared_ = BlockSaved<T>::allocate_shared(block_shape_, kind, memory.workspace);
    break;
  }
  scratch_ = BlockScratch<T>::allocate(block_shape_, options_.dropout > 0, memory.workspace);
}

template <typename T>
void Stage<T>::allocate_ends(Memory& memory) {
  const std::int64_t rows = block_shape_.rows();
  const std::int64_t own = block_shape_.own_rows();
  vocabulary_slice_ = parameter(names_.head).slice;
  norm_ = memory.workspace.allocate<T>(boundary_count());
  if (!block_shape_.llama) mean_ = memory.workspace.allocate<W>(own);
  rstd_ = memory.workspace.allocate<W>(own);
  logits_ = memory.workspace.allocate<T>(rows * logit_columns());
  row_stats_ = memory.workspace.allocate<W>(4 * rows);
  d_norm_ = memory.workspace.allocate<T>(boundary_count());
  d_output_ = memory.workspace.allocate<T>(boundary_count());
}

// What depends on where in the sequences this rank's rows lie.
template <typename T>
void Stage<T>::prepare_positions(Memory& memory) {
  const std::int64_t time = block_shape_.time;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(time));
  for (const sched::SequencePiece& piece : pieces_) {
    for (std::int64_t i = 0; i < piece.count; ++i)
      positions[static_cast<std::size_t>(piece.begin + i)] =
          static_cast<std::int32_t>(piece.first + i * piece.stride);
  }
  const std::int64_t own = block_shape_.own_rows();
  const std::int64_t begin = block_shape_.sequence_parallel ? tensor_rank_.rank * own : 0;
  for (std::int64_t i = 0; i < own; ++i) {
    const std::int64_t row = begin + i;
    const std::int64_t global =
        row / time * batch_.time + positions[static_cast<std::size_t>(row % time)];
    const bool follows =
        !own_rows_.empty() && own_rows_.back().first + own_rows_.back().count == global;
    if (!follows) own_rows_.push_back({i, 0, global});
    ++own_rows_.back().count;
  }
  if (block_shape_.llama) {
    const std::int64_t count = time * block_shape_.head_dim / 2;
    cosine_ = memory.workspace.allocate<W>(count);
    sine_ = memory.workspace.allocate<W>(count);
    kernels::rope_table<W>(positions, block_shape_.head_dim, config_.rope_theta, cosine_, sine_);
  } else if (has_embedding() && options_.context != nullptr) {
    positions_ = memory.workspace.allocate<T>(time * config_.channels);
    d_positions_ = memory.workspace.allocate<W>(time * config_.channels);
  }
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
  return BlockWeights<const T>::at(weights() + unit.begin, flat().parameters, unit.first,
                                   config_.family);
}

template <typename T>
BlockWeights<kernels::Wide<T>> Stage<T>::block_gradients(std::size_t unit) {
  return BlockWeights<W>::at(units_.gradient(unit), flat().parameters, flat().units[unit].first,
                             config_.family);
}

template <typename T>
BlockWeights<const T> Stage<T>::use_block(std::size_t unit) {
  return BlockWeights<const T>::at(units_.use(unit), flat().parameters, flat().units[unit].first,
                                   config_.family);
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
DropoutMask Stage<T>::mask_of(const Microbatch& microbatch, Mode mode) const {
  if (options_.dropout == 0 || mode == Mode::kEvaluate) return {};
  std::vector<GlobalRows> rows = own_rows_;
  for (GlobalRows& run : rows) run.first += microbatch.first_sequence * batch_.time;
  return {options_.dropout, options_.seed, step_, std::move(rows)};
}

template <typename T>
BlockContext<T> Stage<T>::context_of(const Slot& slot, std::size_t layer, const DropoutMask& mask) {
  return {.tensor = tensor_,
          .attention = attention_.get(),
          .cosine = cosine_,
          .sine = sine_,
          .dropout = mask,
          .layer = parts_.stages[slot.chunk].first_layer + static_cast<std::int64_t>(layer),
          .threads = threads_,
          .units = &units_};
}

template <typename T>
double Stage<T>::forward(int slot_index, const Microbatch& microbatch, W loss_scale, Mode mode) {
  Slot& slot = at(slot_index);
  const StageShape& shape = parts_.stages[slot.chunk];
  const DropoutMask mask = mask_of(microbatch, mode);
  if (shape.has_embedding) embed(slot, microbatch, mask);
  for (std::size_t layer = 0; layer < slot.blocks.size(); ++layer) {
    BlockSaved<T> saved = slot.blocks[layer];
    saved.borrow(shared_, kind_of(slot.chunk, layer));
    T* out = layer + 1 == slot.blocks.size() ? slot.output : slot.blocks[layer + 1].x;
    const std::size_t unit = unit_of(slot.chunk, layer);
    const BlockWeights<const T> w = use_block(unit);
    prefetch_after(slot, layer, true);
    block_forward<T>(block_shape_, w, saved, out, scratch_, context_of(slot, layer, mask));
    if (mode == Mode::kTrain) {
      units_.keep(unit);
    } else {
      units_.release(unit);
    }
  }
  return shape.has_head ? head(slot, microbatch, loss_scale, mode) : 0;
}

template <typename T>
kernels::EmbeddingShape Stage<T>::embedding_shape() const {
  const Slice& slice = parameter(names_.table).slice;
  return {.batch = block_shape_.batch,
          .time = block_shape_.time,
          .channels = block_shape_.channels,
          .first_row = slice.begin,
          .rows = slice.end - slice.begin};
}

// Vocabulary-parallel: ids of other ranks' rows give zeros, the sum over the tensor ranks completes
// them; the positions enter that sum once.
template <typename T>
void Stage<T>::embed(const Slot& slot, const Microbatch& microbatch, const DropoutMask& mask) {
  const std::int64_t c = block_shape_.channels;
  T* x = slot.blocks.front().x;
  T* parts = block_shape_.sequence_parallel ? scratch_.whole : x;
  const bool has_positions = names_.positions != nullptr;
  const T* table = units_.use(unit_of(names_.table));
  const T* positions = has_positions ? units_.use(unit_of(names_.positions)) : nullptr;
  const T* rows = positions;
  if (positions_ != nullptr) {
    for (const sched::SequencePiece& piece : pieces_) {
      kernels::copy_rows<T>(
          positions_ + piece.begin * c, positions + piece.first * c,
          {.rows = piece.count, .width = c, .target_stride = c, .source_stride = piece.stride * c},
          threads_);
    }
    rows = positions_;
  }
  kernels::embedding_forward<T>(embedding_shape(), microbatch.tokens, table,
                                tensor_rank_.rank == 0 ? rows : nullptr, parts, threads_);
  units_.release(unit_of(names_.table));
  if (has_positions) units_.release(unit_of(names_.positions));
  if (block_shape_.sequence_parallel) {
    scatter_sum_over<T>(tensor_, parts, x, boundary_count());
  } else {
    sum_over(tensor_, x, boundary_count());
  }
  if (mask.active())
    mask.at(DropoutMask::kEmbeddingStream).apply(static_cast<const T*>(x), x, c, threads_);
}

template <typename T>
double Stage<T>::head(Slot& slot, const Microbatch& microbatch, W loss_scale, Mode mode) {
  const std::size_t norm_unit = unit_of(names_.norm_weight);
  const std::size_t table_unit = unit_of(names_.head);
  const T* norm = units_.use(norm_unit);
  const T* table = units_.use(table_unit);
  const T* normed = head_forward(slot, norm, table);
  const double loss = loss_of(microbatch);
  if (mode == Mode::kTrain) {
    head_backward(slot, microbatch, loss_scale, norm, table, normed);
    units_.gradient_done(norm_unit, microbatch.last);
    if (config_.tied) {
      units_.head_gradient_done(table_unit);
    } else {
      units_.gradient_done(table_unit, microbatch.last);
    }
  }
  units_.release(norm_unit);
  units_.release(table_unit);
  return loss;
}

template <typename T>
NormWeights<const T> Stage<T>::final_norm(const T* norm) const {
  return {norm, names_.norm_bias == nullptr ? nullptr : norm + block_shape_.channels};
}

template <typename T>
const T* Stage<T>::head_forward(const Slot& slot, const T* norm, const T* table) {
  const std::int64_t c = block_shape_.channels;
  norm_forward<T>({block_shape_.own_rows(), c}, slot.output, final_norm(norm), config_.norm_epsilon,
                  norm_, {mean_, rstd_}, threads_);
  const T* normed = norm_;
  if (block_shape_.sequence_parallel) {
    gather_over<T>(tensor_, norm_, scratch_.whole, boundary_count());
    normed = scratch_.whole;
  }
  linear_forward<T>({block_shape_.rows(), c, logit_columns(), true}, normed, table, logits_,
                    threads_);
  return normed;
}

template <typename T>
double Stage<T>::loss_of(const Microbatch& microbatch) {
  const std::int64_t rows = block_shape_.rows();
  W* row_max = row_stats_;
  W* sum_exp = row_stats_ + rows;
  W* target_logit = sum_exp + rows;
  W* loss = target_logit + rows;
  const kernels::CrossEntropyShape entropy = entropy_shape();
  kernels::cross_entropy_max<T>(entropy, logits_, row_max, threads_);
  max_over(tensor_, row_max, rows);
  kernels::cross_entropy_sums<T>(entropy, logits_, microbatch.targets, row_max, sum_exp,
                                 target_logit, threads_);
  sum_over(tensor_, sum_exp, rows);
  sum_over(tensor_, target_logit, rows);
  kernels::cross_entropy_loss<W>(rows, microbatch.targets, sum_exp, target_logit, loss, threads_);
  if (microbatch.loss != nullptr) {
    if constexpr (std::is_same_v<W, float>)
      threads_.accelerator->cross_entropy_total(rows, loss, microbatch.loss);
    return 0;
  }
  kernels::synchronize(threads_);
  double total = 0;
  for (std::int64_t i = 0; i < rows; ++i) total += static_cast<double>(loss[i]);
  return total;
}

template <typename T>
void Stage<T>::head_backward(Slot& slot, const Microbatch& microbatch, W loss_scale, const T* norm,
                             const T* table, const T* normed) {
  const std::int64_t rows = block_shape_.rows();
  const std::int64_t c = block_shape_.channels;
  const LinearShape shape{rows, c, logit_columns(), true};
  kernels::cross_entropy_backward<T>(entropy_shape(), logits_, microbatch.targets, row_stats_,
                                     row_stats_ + rows, loss_scale, threads_);
  const std::size_t table_unit = unit_of(names_.head);
  W* d_table = config_.tied ? units_.head_gradient(table_unit) : units_.gradient(table_unit);
  W* d_norm = units_.gradient(unit_of(names_.norm_weight));
  linear_backward_weight<T>(shape, normed, logits_, d_table, threads_);
  T* parts = block_shape_.sequence_parallel ? scratch_.whole : d_norm_;
  linear_backward_input<T>(shape, logits_, table, parts, threads_);
  if (block_shape_.sequence_parallel) {
    scatter_sum_over<T>(tensor_, parts, d_norm_, boundary_count());
  } else {
    sum_over(tensor_, d_norm_, boundary_count());
  }
  norm_backward<T>({block_shape_.own_rows(), c}, d_norm_, slot.output, final_norm(norm),
                   {mean_, rstd_}, kernels::Write::kAssign, d_output_,
                   {d_norm, names_.norm_bias == nullptr ? nullptr : d_norm + c}, threads_);
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
  const DropoutMask mask = mask_of(microbatch, Mode::kTrain);
  if (weights_now_) weights = Weights::kNow;
  for (std::size_t layer = slot.blocks.size(); layer-- > 0;)
    block_backward(slot, layer, microbatch, mask, weights);
  if (weights == Weights::kNow) embedding_backward(slot, microbatch, mask);
}

template <typename T>
void Stage<T>::block_backward(Slot& slot, std::size_t layer, const Microbatch& microbatch,
                              const DropoutMask& mask, Weights weights) {
  const sched::Recompute kind = kind_of(slot.chunk, layer);
  const std::size_t unit = unit_of(slot.chunk, layer);
  const BlockWeights<const T> w = use_block(unit);
  prefetch_after(slot, layer, false);
  const BlockWeights<W> d_w = block_gradients(unit);
  const BlockContext<T> context = context_of(slot, layer, mask);
  const T* d_out = output_gradient(slot, layer);
  BlockSaved<T> saved = slot.blocks[layer];
  saved.borrow(shared_, kind);
  if (kind == sched::Recompute::kFull)
    block_forward<T>(block_shape_, w, saved, scratch_.d_x, scratch_, context);
  if (kind == sched::Recompute::kSelective) block_recompute<T>(block_shape_, w, saved, threads_);
  block_backward_input<T>(block_shape_, w, saved, d_w, scratch_, d_out, context);
  if (weights == Weights::kNow || kind != sched::Recompute::kNone)
    block_backward_weight<T>(block_shape_, saved, d_out, d_w, scratch_, context);
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
  if (weights_now_) return;
  Slot& slot = at(slot_index);
  const DropoutMask mask = mask_of(microbatch, Mode::kTrain);
  for (std::size_t layer = slot.blocks.size(); layer-- > 0;) {
    const std::size_t unit = unit_of(slot.chunk, layer);
    if (kind_of(slot.chunk, layer) == sched::Recompute::kNone)
      block_backward_weight<T>(block_shape_, slot.blocks[layer], output_gradient(slot, layer),
                               block_gradients(unit), scratch_, context_of(slot, layer, mask));
    units_.gradient_done(unit, microbatch.last);
    units_.progress();
  }
  embedding_backward(slot, microbatch, mask);
}

template <typename T>
void Stage<T>::embedding_backward(const Slot& slot, const Microbatch& microbatch,
                                  const DropoutMask& mask) {
  if (!parts_.stages[slot.chunk].has_embedding) return;
  const std::int64_t c = block_shape_.channels;
  const T* d = slot.blocks.front().x;
  if (mask.active()) {
    mask.at(DropoutMask::kEmbeddingStream).apply(d, scratch_.d_branch, c, threads_);
    d = scratch_.d_branch;
  }
  if (block_shape_.sequence_parallel) {
    gather_over<T>(tensor_, d, scratch_.whole, boundary_count());
    d = scratch_.whole;
  }
  const bool has_positions = names_.positions != nullptr;
  W* d_table = units_.gradient(unit_of(names_.table));
  W* d_positions = has_positions ? units_.gradient(unit_of(names_.positions)) : nullptr;
  if (d_positions_ != nullptr) kernels::clear<W>(d_positions_, block_shape_.time * c, threads_);
  kernels::embedding_backward<T>(embedding_shape(), microbatch.tokens, d, d_table,
                                 d_positions_ != nullptr ? d_positions_ : d_positions, threads_);
  if (d_positions_ != nullptr) {
    for (const sched::SequencePiece& piece : pieces_) {
      const std::int64_t run = piece.stride == 1 ? piece.count : 1;  // positions side by side
      for (std::int64_t i = 0; i < piece.count; i += run)
        kernels::add<W>(d_positions + (piece.first + i * piece.stride) * c,
                        d_positions_ + (piece.begin + i) * c, run * c, threads_);
    }
  }
  units_.gradient_done(unit_of(names_.table), microbatch.last);
  if (has_positions) units_.gradient_done(unit_of(names_.positions), microbatch.last);
}

template <typename T>
std::uint64_t Stage<T>::tied_fingerprint() const {
  const Parameter& table = parameter(names_.table);
  const Piece held =
      units_.held()[unit_of(table)].within(table.offset, table.offset + table.slice.local_count());
  if (held.count <= 0) return 0;
  return fingerprint(weights() + held.weight_begin, sizeof(T), held.flat_begin - table.offset,
                     held.count);
}

template class Stage<float>;
template class Stage<double>;
template class Stage<bf16>;

}  // namespace sinew::model
