#include "model/stage.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "model/linear.h"
#include "model/parallel.h"
#include "model/tensor.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {
constexpr std::size_t kBlockParameters = 12;
}  // namespace

template <typename T>
Stage<T>::Stage(const Config& config, const StageShape& shape, TensorRank tensor_rank,
                comm::Communicator* tensor, BatchShape batch, int slots, std::int64_t multiple,
                kernels::Threads threads, Memory& memory)
    : config_(config),
      shape_(shape),
      tensor_rank_(tensor_rank),
      tensor_(tensor),
      block_shape_(config, batch.batch, batch.time, tensor_rank.world),
      threads_(threads),
      flat_(flat_layout(config, shape, tensor_rank, multiple)),
      first_block_(shape.has_embedding ? 2 : 0) {
  CHECK_GE(slots, 1);
  CHECK_LE(batch.time, config.max_time);
  weights_ = memory.parameters.allocate<T>(flat_.count);
  gradients_ = memory.gradients.allocate<T>(flat_.count);

  const std::int64_t rows = block_shape_.rows();
  const std::int64_t boundary = boundary_count();
  for (int i = 0; i < slots; ++i) {
    Slot slot;
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      slot.x.push_back(memory.activations.allocate<T>(boundary));
      slot.blocks.push_back(BlockSaved<T>::allocate(block_shape_, memory.activations));
      slot.blocks.back().x = slot.x.back();
    }
    slot.x.push_back(memory.activations.allocate<T>(boundary));
    if (shape.has_head) slot.d_output = memory.activations.allocate<T>(boundary);
    slots_.push_back(std::move(slot));
  }
  scratch_ = BlockScratch<T>::allocate(block_shape_, memory.workspace);
  if (shape.has_head) {
    vocabulary_slice_ = parameter("wte.weight").slice;
    if (shape.has_embedding)
      d_tied_ = memory.workspace.allocate<T>(vocabulary_slice_.local_count());
    norm_ = memory.workspace.allocate<T>(boundary);
    mean_ = memory.workspace.allocate<T>(rows);
    rstd_ = memory.workspace.allocate<T>(rows);
    logits_ = memory.workspace.allocate<T>(rows * logit_columns());
    row_stats_ = memory.workspace.allocate<T>(4 * rows);
    d_norm_ = memory.workspace.allocate<T>(boundary);
  }
}

template <typename T>
const Parameter& Stage<T>::parameter(const char* name) const {
  const auto found = std::find_if(flat_.parameters.begin(), flat_.parameters.end(),
                                  [&](const Parameter& p) { return p.name == name; });
  CHECK(found != flat_.parameters.end());
  return *found;
}

template <typename T>
BlockWeights<const T> Stage<T>::block_weights(std::size_t layer) const {
  return BlockWeights<const T>::at(weights_, flat_.parameters,
                                   first_block_ + layer * kBlockParameters);
}

template <typename T>
BlockWeights<T> Stage<T>::block_gradients(std::size_t layer) {
  return BlockWeights<T>::at(gradients_, flat_.parameters, first_block_ + layer * kBlockParameters);
}

template <typename T>
void Stage<T>::zero_gradients() {
  std::fill_n(gradients_, flat_.count, T{0});
  if (d_tied_ != nullptr) std::fill_n(d_tied_, vocabulary_slice_.local_count(), T{0});
}

template <typename T>
double Stage<T>::forward(int slot_index, const Microbatch& microbatch, T loss_scale, Mode mode) {
  const Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
  if (shape_.has_embedding) embed(slot, microbatch);
  for (std::size_t layer = 0; layer < slot.blocks.size(); ++layer) {
    block_forward<T>(block_shape_, block_weights(layer), slot.blocks[layer], slot.x[layer + 1],
                     tensor_, threads_);
  }
  return shape_.has_head ? head(slot, microbatch, loss_scale, mode) : 0;
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
                                slot.x.front(), threads_);
  sum_over(tensor_, slot.x.front(), boundary_count());
}

template <typename T>
double Stage<T>::head(const Slot& slot, const Microbatch& microbatch, T loss_scale, Mode mode) {
  const std::int64_t rows = block_shape_.rows();
  const std::int64_t c = block_shape_.channels;
  const std::int64_t columns = logit_columns();
  const Parameter& norm_weight = parameter("ln_f.weight");
  const Parameter& norm_bias = parameter("ln_f.bias");
  const T* table = weight("wte.weight");
  kernels::layer_norm_forward<T>({rows, c}, slot.x.back(), weights_ + norm_weight.offset,
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
  kernels::layer_norm_backward<T>({rows, c}, d_norm_, slot.x.back(), weights_ + norm_weight.offset,
                                  mean_, rstd_, kernels::Write::kAssign, slot.d_output,
                                  gradients_ + norm_weight.offset, gradients_ + norm_bias.offset,
                                  threads_);
  return total;
}

template <typename T>
void Stage<T>::swap_input(int slot_index, T*& buffer) {
  Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
  std::swap(slot.x.front(), buffer);
  slot.blocks.front().x = slot.x.front();
}

template <typename T>
void Stage<T>::backward(int slot_index, const Microbatch& microbatch, T* d) {
  const Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
  for (std::size_t layer = slot.blocks.size(); layer-- > 0;) {
    block_backward<T>(block_shape_, block_weights(layer), slot.blocks[layer],
                      block_gradients(layer), scratch_, d, tensor_, threads_);
  }
  if (!shape_.has_embedding) return;
  const Parameter& table = parameter("wte.weight");
  kernels::embedding_backward<T>({.batch = block_shape_.batch,
                                  .time = block_shape_.time,
                                  .channels = block_shape_.channels,
                                  .first_row = table.slice.begin,
                                  .rows = table.slice.end - table.slice.begin},
                                 microbatch.tokens, d, gradients_ + table.offset,
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
