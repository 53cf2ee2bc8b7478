// Optimizer: from a step's local gradients to new weights: the global norm, clipping and AdamW on
// the pieces of the weights that this rank owns (units.h).
//
// Threads: one rank, one thread. Collective: all ranks of the run call step() together.
//
// The norm counts every logical element once: sharded slices on each rank, replicated tensors on
// tensor rank 0, a tied table on the first stage. Sums of squares are kept per logical tensor and
// added in the model's order, so that the split along the pipeline does not change them.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/adamw.h"
#include "model/parallel.h"
#include "model/stage.h"
#include "sched/base/check.h"

namespace sinew::model {

class DeviceStep;

// Linear warm-up over `warmup` steps, then a cosine from lr to min_lr that ends at the last step.
struct LearningRate {
  double lr = 1e-3;
  double min_lr = 1e-4;
  std::int64_t warmup = 0;
  std::int64_t steps = 1;
  // step counts from 0.
  [[nodiscard]] double at(std::int64_t step) const;
};

struct OptimizerOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  // 0: never
  int zero = 0;       // 0 to 3; more than 0: a rank updates its pieces only
  // Of bf16 weights: no masters; the weights take the step and are rounded up or down by chance, an
  // element by the seed, the step and its place in the logical tensor.
  bool stochastic = false;
  std::uint64_t seed = 0;  // of the rounding
  std::string offload{};   // folder of files that hold moments and masters; empty: memory does
};

struct StepReport {
  double gradient_norm = 0;
  bool skipped = false;    // the norm was not finite: nothing was changed
  std::string bad_tensor;  // then: the first tensor in model order whose gradient is not finite,
  int bad_rank = -1;       // and the lowest rank that computed it; -1 when only sums overflowed
};

// Keeps the coefficient finite at norm 0; PyTorch's value.
inline constexpr double kNormGuard = 1e-6;
inline constexpr std::uint32_t kRoundingPurpose = 0x20D;  // of random streams

// T is float, double or bf16. bf16 weights are their f32 masters rounded to nearest, and the update
// is of the masters; or, rounded stochastically, they have none.
template <typename T>
class Optimizer {
 public:
  using W = kernels::Wide<T>;

  // Collective. names: of all the model's parameters, in model order. Throws on every rank when the
  // files of any cannot be made.
  Optimizer(Stage<T>& stage, Parallel& parallel, const OptimizerOptions& options,
            std::vector<std::string> names, kernels::Threads threads, Memory& memory);

  // Tied copies and data parallelism, as far as Units has not done it during backward, then what
  // tensor ranks hold in parts.
  void reduce_gradients();
  // Norm, clip, AdamW with this learning rate, and with ZeRO the weights' all-gather.
  StepReport step(double learning_rate);

  // On a device instead, whose steps the host does not look into: tell() between steps what the
  // next one needs, queue_step() what step() does, report() when the device is idle again. use():
  // once.
  void use(DeviceStep& device);
  void tell(double learning_rate);
  void queue_step();
  [[nodiscard]] StepReport report();

  // In increasing order; the whole of the flat buffers without ZeRO.
  [[nodiscard]] const std::vector<Piece>& owned() const { return stage_.units().owned(); }
  // Whether this rank stands for its owned pieces among the ranks of data parallelism: in the norm
  // it counts them in its own group, in files for all groups.
  [[nodiscard]] bool stands_for_owned() const {
    return options_.zero != 0 ? parallel_.in_first_group() : parallel_.data_rank() == 0;
  }
  [[nodiscard]] W* first_moment() { return first_moment_; }    // by state_begin
  [[nodiscard]] W* second_moment() { return second_moment_; }  // likewise
  // Whether weights narrower than their sums are possible.
  static constexpr bool kNarrow = !std::is_same_v<T, W>;
  // Whether the update is of values as wide as its sums: the weights themselves, or masters.
  [[nodiscard]] bool updates_wide() const { return !kNarrow || !options_.stochastic; }
  // What the update changes of an owned piece: the weights, or their masters. Not for weights that
  // have none.
  [[nodiscard]] W* masters(const Piece& piece) const {
    if constexpr (kNarrow) {
      CHECK(masters_ != nullptr);
      return masters_ + piece.state_begin;
    } else {
      return stage_.weights() + piece.weight_begin;
    }
  }
  // AdamW's steps taken: skipped ones do not count.
  [[nodiscard]] std::int64_t steps_taken() const { return steps_taken_; }
  void set_steps_taken(std::int64_t steps) { steps_taken_ = steps; }

 private:
  [[nodiscard]] std::vector<double> square_sums() const;
  void find_bad(const std::vector<double>& sums, StepReport& report) const;
  template <typename Body>
  void for_each_piece(Body&& body) const;
  void update(const kernels::AdamW& adamw, const Parameter& p, const Piece& piece);
  // body(gradients, part of the piece), as wide as their sums; narrow ones piece by piece.
  template <typename Body>
  void with_wide_gradients(const Piece& piece, Body&& body);
  void update_stochastically(const kernels::AdamW& adamw, const Parameter& p, const Piece& piece);
  void queue_square_sums();
  void queue_update(const Parameter& p, const Piece& piece);

  Stage<T>& stage_;
  Parallel& parallel_;
  OptimizerOptions options_;
  std::vector<std::string> names_;
  kernels::Threads threads_;
  W* first_moment_ = nullptr;
  W* second_moment_ = nullptr;
  W* masters_ = nullptr;
  W* widened_ = nullptr;  // [kWidened], of narrow gradients
  std::int64_t steps_taken_ = 0;
  DeviceStep* device_ = nullptr;
};

// Calls body(parameter, piece) for the part of each parameter that this rank owns, in model order
// of the stage.
template <typename T>
template <typename Body>
void Optimizer<T>::for_each_piece(Body&& body) const {
  for (const Parameter& p : stage_.parameters()) {
    for (const Piece& owned : stage_.units().owned()) {
      const Piece piece = owned.within(p.offset, p.offset + p.slice.local_count());
      if (piece.count > 0) body(p, piece);
    }
  }
}

}  // namespace sinew::model
