// Stage: the layers of one pipeline stage on one rank, with the token and position tables on the
// first stage and the final norm, the tied head and the loss on the last.
//
// Never does: decide what runs when (runner.h does), communicate along the pipeline or over data
// parallelism. Threads: one rank, one thread. T is float or double.
//
// Terms: a slot holds what one microbatch in flight has saved for its backward pass; the pipeline
// schedule says how many are needed. The loss's own backward runs within forward on the last stage,
// so that one [rows, V/t] buffer of logits serves any number of microbatches in flight.
#pragma once

#include <cstdint>
#include <vector>

#include "model/arena.h"
#include "model/block.h"
#include "model/config.h"
#include "model/layout.h"

namespace sinew::model {

// One microbatch: [B, T] row-major. targets[i] == -1: no loss at this position.
struct Microbatch {
  const std::int32_t* tokens = nullptr;
  const std::int32_t* targets = nullptr;
};

struct BatchShape {
  std::int64_t batch = 1;
  std::int64_t time = 1;
};

// The arenas a rank's memory is counted in.
struct Memory {
  Arena parameters{"parameters"};
  Arena gradients{"gradients"};
  Arena optimizer{"optimizer"};
  Arena activations{"activations"};
  Arena workspace{"workspace"};  // scratch and buffers that do not grow with microbatches in flight
};

template <typename T>
class Stage {
 public:
  // slots: microbatches in flight at most. multiple: as in flat_layout().
  Stage(const Config& config, const StageShape& shape, TensorRank tensor_rank,
        comm::Communicator* tensor, BatchShape batch, int slots, std::int64_t multiple,
        kernels::Threads threads, Memory& memory);

  // A parameter of the two ends, by its name; the twelve of one of this stage's layers.
  [[nodiscard]] const T* weight(const char* name) const {
    return weights_ + parameter(name).offset;
  }
  [[nodiscard]] BlockWeights<const T> block_weights(std::size_t layer) const;
  [[nodiscard]] const FlatLayout& flat() const { return flat_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const { return flat_.parameters; }
  [[nodiscard]] T* weights() { return weights_; }
  [[nodiscard]] const T* weights() const { return weights_; }
  [[nodiscard]] T* gradients() { return gradients_; }
  [[nodiscard]] const std::vector<Unit>& units() const { return flat_.units; }
  // Of the flat buffers, padding included.
  [[nodiscard]] std::int64_t count() const { return flat_.count; }
  [[nodiscard]] const StageShape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t boundary_count() const {
    return block_shape_.rows() * block_shape_.channels;
  }

  void zero_gradients();

  // Where the previous stage's output is received: [rows, C].
  [[nodiscard]] T* input(int slot) { return slots_[static_cast<std::size_t>(slot)].x.front(); }
  // Makes `buffer` the slot's input and hands back the former one: an input that was received aside
  // moves in without a copy.
  void swap_input(int slot, T*& buffer);
  // What the next stage needs: [rows, C], valid until the slot's next forward.
  [[nodiscard]] const T* output(int slot) const {
    return slots_[static_cast<std::size_t>(slot)].x.back();
  }

  enum class Mode : std::uint8_t { kTrain, kEvaluate };
  // On the last stage returns the sum of the microbatch's losses and, when training, leaves the
  // gradient of the stage's last block output, scaled by loss_scale (one over the number of targets
  // of the whole batch).
  double forward(int slot, const Microbatch& microbatch, T loss_scale, Mode mode);
  // Last stage: the gradient of its output that forward left.
  [[nodiscard]] T* output_gradient(int slot) {
    return slots_[static_cast<std::size_t>(slot)].d_output;
  }
  // d: [rows, C], the gradient of the stage's output (on the last stage output_gradient(slot));
  // becomes the gradient of its input. Gradients of weights are accumulated.
  void backward(int slot, const Microbatch& microbatch, T* d);

  // Adds the head's share of the tied table's gradient; call once after the last backward of a
  // step. On a pipeline of one stage both shares live here; on a longer one they meet by
  // Parallel::tie().
  void fold_tied_gradient();

  // Of the bits of this rank's slice of the tied table (tensor.h).
  [[nodiscard]] std::uint64_t tied_fingerprint() const;

  // The logits of the last forward in evaluation mode: [rows, columns of this tensor rank].
  [[nodiscard]] const T* logits() const { return logits_; }
  [[nodiscard]] std::int64_t logit_columns() const {
    return vocabulary_slice_.end - vocabulary_slice_.begin;
  }

 private:
  struct Slot {
    std::vector<T*> x;  // inputs of the blocks, then the output of the last
    std::vector<BlockSaved<T>> blocks;
    T* d_output = nullptr;  // last stage: gradient of the last block's output
  };

  [[nodiscard]] const Parameter& parameter(const char* name) const;
  [[nodiscard]] BlockWeights<T> block_gradients(std::size_t layer);
  void embed(const Slot& slot, const Microbatch& microbatch);
  double head(const Slot& slot, const Microbatch& microbatch, T loss_scale, Mode mode);

  Config config_;
  StageShape shape_;
  TensorRank tensor_rank_;
  comm::Communicator* tensor_;
  BlockShape block_shape_;
  kernels::Threads threads_;
  FlatLayout flat_;
  T* weights_ = nullptr;
  T* gradients_ = nullptr;
  std::size_t first_block_ = 0;  // index into parameters_
  std::vector<Slot> slots_;
  BlockScratch<T> scratch_;

  // Last stage only.
  Slice vocabulary_slice_;
  T* d_tied_ =
      nullptr;  // the head's gradient of the tied table while the embedding's is on this rank, too
  T* norm_ = nullptr;  // final norm's output
  T* mean_ = nullptr;
  T* rstd_ = nullptr;
  T* logits_ = nullptr;
  T* row_stats_ = nullptr;  // [4, rows]: max, sum of exponentials, target logit, loss
  T* d_norm_ = nullptr;
};

}  // namespace sinew::model
