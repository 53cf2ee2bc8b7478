// Stage: the layers of one rank's pipeline stages, with the token and position tables on the first
// stage and the final norm, the tied head and the loss on the last.
//
// Never does: decide what runs when (runner.h does), communicate along the pipeline or over data
// parallelism. Threads: one rank, one thread. T is float, double or bf16; statistics, losses and
// gradients of weights are Wide<T>.
//
// Terms: a chunk is one of the rank's stages, counted from 0 in model order. A slot holds what one
// microbatch in flight on one chunk has saved for its backward pass; slots share the layers'
// buffers, of which there are as many as the schedule holds at once (sched/plan/held.h). The
// loss's own backward runs within forward on the last stage, so that one [rows, V/t] buffer of
// logits serves any number of microbatches in flight.
//
// Layers under recomputation compute again in backward what they did not keep. Their weights'
// gradients are then found in backward as well, whether the schedule splits it or not: what they
// multiply exists only there. So do all layers where gradients are cut over data parallelism or
// kept narrow: a unit's working buffer serves one microbatch at a time. Under sequence parallelism,
// too, all weights' gradients are found in backward. Under context parallelism a rank's tokens,
// targets and activations are those of its positions (sched/plan/context.h) in their increasing
// order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "model/arena.h"
#include "model/block.h"
#include "model/config.h"
#include "model/layout.h"
#include "model/norm.h"
#include "model/units.h"
#include "sched/plan/held.h"

namespace sinew::model {

// One microbatch: [B, positions of this rank] row-major. targets[i] == -1: no loss there.
struct Microbatch {
  const std::int32_t* tokens = nullptr;
  const std::int32_t* targets = nullptr;
  bool last = false;                // of the step
  std::int64_t first_sequence = 0;  // its number in the step's whole batch; dropout draws by it
  // On a device: where it leaves the sum of the losses, for which forward() then does not wait.
  double* loss = nullptr;
};

struct BatchShape {
  std::int64_t batch = 1;
  std::int64_t time = 1;  // of whole sequences
};

struct StageOptions {
  comm::Communicator* context = nullptr;  // null: this rank holds whole sequences
  sched::ContextMode context_mode = sched::ContextMode::kZigzag;
  double dropout = 0;
  std::uint64_t seed = 0;  // of dropout
};

// The arenas a rank's memory is counted in.
struct Memory {
  // With an accelerator all lie in its memory, messages where they go from device to device.
  explicit Memory(kernels::Accelerator* accelerator = nullptr,
                  kernels::Accelerator* of_messages = nullptr)
      : parameters("parameters", accelerator),
        gradients("gradients", accelerator),
        optimizer("optimizer", accelerator),
        activations("activations", accelerator),
        workspace("workspace", accelerator),
        gathered("gathered", accelerator),
        messages("messages", of_messages) {}

  Arena parameters;
  Arena gradients;
  Arena optimizer;
  Arena activations;
  Arena workspace;  // scratch and buffers that do not grow with microbatches in flight
  Arena gathered;   // working buffers of units.h
  Arena messages;   // of the pipeline (mailbox.h)
};

// What of the model a rank holds, and how much of it at once.
struct StageParts {
  std::vector<StageShape> stages;           // in model order
  std::vector<sched::Recompute> recompute;  // [layers of the model]
  sched::Held held;

  // One stage of some microbatches at once, without recomputation.
  static StageParts one(const Config& config, const StageShape& stage, int microbatches = 1);
};

template <typename T>
class Stage {
 public:
  using W = kernels::Wide<T>;

  Stage(const Config& config, StageParts parts, TensorRank tensor_rank, comm::Communicator* tensor,
        BatchShape batch, const Sharding& sharding, kernels::Threads threads, Memory& memory,
        const StageOptions& options = {});

  // A parameter of the two ends, by its name; those of one of the rank's layers. For a stage whose
  // weights are not cut.
  [[nodiscard]] const T* weight(const char* name) const {
    return units_.weights() + parameter(name).offset;
  }
  [[nodiscard]] BlockWeights<const T> block_weights(std::size_t chunk, std::size_t layer) const;
  [[nodiscard]] const FlatLayout& flat() const { return units_.flat(); }
  [[nodiscard]] const std::vector<Parameter>& parameters() const { return flat().parameters; }
  [[nodiscard]] Units<T>& units() { return units_; }
  [[nodiscard]] const Units<T>& units() const { return units_; }
  // As units() holds them.
  [[nodiscard]] T* weights() { return units_.weights(); }
  [[nodiscard]] const T* weights() const { return units_.weights(); }
  [[nodiscard]] W* gradients() { return units_.gradients(); }
  [[nodiscard]] const W* gradients() const { return units_.gradients(); }
  // Of the flat layout, padding included.
  [[nodiscard]] std::int64_t count() const { return flat().count; }
  [[nodiscard]] std::size_t chunks() const { return parts_.stages.size(); }
  [[nodiscard]] bool has_embedding() const { return parts_.stages.front().has_embedding; }
  [[nodiscard]] bool has_head() const { return parts_.stages.back().has_head; }
  [[nodiscard]] kernels::Threads threads() const { return threads_; }
  [[nodiscard]] std::int64_t boundary_count() const {
    return block_shape_.own_rows() * block_shape_.channels;
  }

  void zero_gradients() { units_.zero_gradients(); }
  // Of the run: what dropout draws by.
  void set_step(std::int64_t step) { step_ = step; }

  // A free slot for a microbatch on a chunk, until it is closed.
  [[nodiscard]] int open(std::size_t chunk);
  void close(int slot);
  // The microbatch's input to the chunk and the chunk's output, [own rows, C] (block.h); after
  // backward the gradients of the two. The caller may trade the buffer for another of
  // boundary_count() elements: what was received moves in without a copy.
  [[nodiscard]] T*& input(int slot) { return at(slot).blocks.front().x; }
  [[nodiscard]] T*& output(int slot) { return at(slot).output; }

  enum class Mode : std::uint8_t { kTrain, kEvaluate };
  // From input to output; on the first stage from the tokens. On the last stage returns the sum of
  // the microbatch's losses (0 where microbatch.loss gets it) and, when training, leaves the
  // gradient of the last layer's output in output(), scaled by loss_scale (one over the number of
  // targets of the whole batch).
  double forward(int slot, const Microbatch& microbatch, W loss_scale, Mode mode);
  // From the gradient of the output, in output(), to that of the input, in input(). Gradients of
  // weights are accumulated: all of them, or all that backward_weights() will not.
  enum class Weights : std::uint8_t { kNow, kLater };
  void backward(int slot, const Microbatch& microbatch, Weights weights);
  // What backward with kLater left over; the slot's buffers must be as it left them.
  void backward_weights(int slot, const Microbatch& microbatch);

  // After the last backward of a step: Units::finish().
  void finish_gradients(comm::Communicator* tie) { units_.finish(tie); }

  // Of the bits of this rank's slice of the tied table (tensor.h).
  [[nodiscard]] std::uint64_t tied_fingerprint() const;

  // The logits of the last forward in evaluation mode: [rows, columns of this tensor rank].
  [[nodiscard]] const T* logits() const { return logits_; }
  [[nodiscard]] std::int64_t logit_columns() const {
    return vocabulary_slice_.end - vocabulary_slice_.begin;
  }

 private:
  struct Slot {
    bool open = false;
    std::size_t chunk = 0;
    std::vector<BlockSaved<T>> blocks;
    T* output = nullptr;
  };

  [[nodiscard]] Slot& at(int slot);
  [[nodiscard]] sched::Recompute kind_of(std::size_t chunk, std::size_t layer) const;
  [[nodiscard]] std::size_t unit_of(std::size_t chunk, std::size_t layer) const;
  [[nodiscard]] std::size_t unit_of(const Parameter& parameter) const;
  [[nodiscard]] const Parameter& parameter(const char* name) const;
  [[nodiscard]] std::size_t unit_of(const char* name) const { return unit_of(parameter(name)); }
  [[nodiscard]] BlockWeights<const T> use_block(std::size_t unit);
  [[nodiscard]] BlockWeights<W> block_gradients(std::size_t unit);
  void allocate_layers(Memory& memory);
  void allocate_ends(Memory& memory);
  void prepare_positions(Memory& memory);
  [[nodiscard]] DropoutMask mask_of(const Microbatch& microbatch, Mode mode) const;
  [[nodiscard]] BlockContext<T> context_of(const Slot& slot, std::size_t layer,
                                           const DropoutMask& mask);
  [[nodiscard]] kernels::EmbeddingShape embedding_shape() const;
  void embed(const Slot& slot, const Microbatch& microbatch, const DropoutMask& mask);
  double head(Slot& slot, const Microbatch& microbatch, W loss_scale, Mode mode);
  // norm: weight, then the bias that GPT-2 has. The normed rows, all of them, which the logits are
  // made of.
  [[nodiscard]] NormWeights<const T> final_norm(const T* norm) const;
  const T* head_forward(const Slot& slot, const T* norm, const T* table);
  double loss_of(const Microbatch& microbatch);
  void head_backward(Slot& slot, const Microbatch& microbatch, W loss_scale, const T* norm,
                     const T* table, const T* normed);
  [[nodiscard]] kernels::CrossEntropyShape entropy_shape() const;
  // What to prefetch while a layer is computed: the next unit in this direction, if any.
  void prefetch_after(const Slot& slot, std::size_t layer, bool forward);
  void block_backward(Slot& slot, std::size_t layer, const Microbatch& microbatch,
                      const DropoutMask& mask, Weights weights);
  void embedding_backward(const Slot& slot, const Microbatch& microbatch, const DropoutMask& mask);
  // The gradient of a layer's output.
  [[nodiscard]] static const T* output_gradient(const Slot& slot, std::size_t layer) {
    return layer + 1 == slot.blocks.size() ? slot.output : slot.blocks[layer + 1].x;
  }

  Config config_;
  EndNames names_;
  StageParts parts_;
  StageOptions options_;
  BatchShape batch_;
  std::vector<sched::SequencePiece> pieces_;
  TensorRank tensor_rank_;
  comm::Communicator* tensor_;
  BlockShape block_shape_;
  kernels::Threads threads_;
  Units<T> units_;
  bool weights_now_;  // whether backward leaves nothing to backward_weights()
  std::vector<Slot> slots_;
  std::array<std::vector<BlockSaved<T>>, sched::kRecomputeKinds> free_layers_;  // by Recompute
  std::vector<T*> free_outputs_;
  BlockSaved<T> shared_{};  // what layers under recomputation do not keep
  BlockScratch<T> scratch_;
  std::unique_ptr<Attention<T>> attention_;
  std::int64_t step_ = 0;
  std::vector<GlobalRows> own_rows_;  // of a microbatch that begins with sequence 0
  W* cosine_ = nullptr;               // Llama: [positions of this rank, head_dim / 2]
  W* sine_ = nullptr;
  // GPT-2 under context parallelism: this rank's rows of the position table and their gradients.
  T* positions_ = nullptr;
  W* d_positions_ = nullptr;

  // Last stage only.
  Slice vocabulary_slice_;
  T* norm_ = nullptr;  // final norm's output
  W* mean_ = nullptr;
  W* rstd_ = nullptr;
  T* logits_ = nullptr;
  W* row_stats_ = nullptr;  // [4, rows]: max, sum of exponentials, target logit, loss
  T* d_norm_ = nullptr;
  T* d_output_ = nullptr;
};

}  // namespace sinew::model
