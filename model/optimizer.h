// Optimizer: from a step's local gradients to new weights: sums over the tied copies and data
// parallelism, the global norm, clipping, AdamW, and with ZeRO-1 the sharding of its state.
//
// Threads: one rank, one thread. Collective: all ranks of the run call step() together.
//
// ZeRO-1 (Rajbhandari et al., SC 2020): every unit of the flat buffers (layout.h) is cut into dp
// equal pieces; a rank keeps moments of its pieces only. Per step and unit: reduce-scatter of the
// gradients, all-gather of the weights, together the volume of one all-reduce. Any remainder: units
// are padded to a multiple of dp.
//
// The norm counts every logical element once: sharded slices on each rank, replicated tensors on
// tensor rank 0, a tied table on the first stage. Sums of squares are kept per logical tensor and
// added in the model's order, so that the split along the pipeline does not change them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/adamw.h"
#include "model/parallel.h"
#include "model/stage.h"

namespace sinew::model {

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
  int zero = 0;       // 0 or 1
};

struct StepReport {
  double gradient_norm = 0;
  bool skipped = false;    // the norm was not finite: nothing was changed
  std::string bad_tensor;  // then: the first tensor in model order whose gradient is not finite,
  int bad_rank = -1;       // and the lowest rank that computed it; -1 when only sums overflowed
};

// A piece of the flat buffers whose optimizer state this rank keeps: elements [flat_begin, +count)
// there are [state_begin, +count) of the moments.
struct Owned {
  std::int64_t flat_begin = 0;
  std::int64_t count = 0;
  std::int64_t state_begin = 0;
};

template <typename T>
class Optimizer {
 public:
  // names: of all the model's parameters, in model order.
  Optimizer(Stage<T>& stage, Parallel& parallel, const OptimizerOptions& options,
            std::vector<std::string> names, kernels::Threads threads, Memory& memory);

  // Tied copies, then data parallelism: afterwards gradients() hold the whole batch's (with ZeRO-1
  // in this rank's owned pieces only).
  void reduce_gradients();
  // Norm, clip, AdamW with this learning rate, and with ZeRO-1 the weights' all-gather.
  StepReport step(double learning_rate);

  // In increasing order; the whole of the flat buffers without ZeRO.
  [[nodiscard]] const std::vector<Owned>& owned() const { return owned_; }
  // Whether this rank stands for its owned pieces among the ranks of data parallelism.
  [[nodiscard]] bool stands_for_owned() const {
    return options_.zero != 0 || parallel_.coordinates().dp == 0;
  }
  [[nodiscard]] T* first_moment() { return first_moment_; }    // by state_begin
  [[nodiscard]] T* second_moment() { return second_moment_; }  // likewise
  // AdamW's steps taken: skipped ones do not count.
  [[nodiscard]] std::int64_t steps_taken() const { return steps_taken_; }
  void set_steps_taken(std::int64_t steps) { steps_taken_ = steps; }

  // What the units of the flat buffers must be a multiple of.
  [[nodiscard]] static std::int64_t multiple(int zero, int data_world) {
    return zero == 0 ? 1 : data_world;
  }

 private:
  [[nodiscard]] std::vector<double> square_sums() const;
  void find_bad(const std::vector<double>& sums, StepReport& report) const;
  void note_bad_gradients();
  template <typename Body>
  void for_each_piece(Body&& body) const;

  Stage<T>& stage_;
  Parallel& parallel_;
  OptimizerOptions options_;
  std::vector<std::string> names_;
  kernels::Threads threads_;
  std::vector<Owned> owned_;
  std::vector<bool> bad_before_sum_;  // [model parameters] not finite before data parallelism's sum
  T* first_moment_ = nullptr;
  T* second_moment_ = nullptr;
  std::int64_t steps_taken_ = 0;
};

}  // namespace sinew::model
