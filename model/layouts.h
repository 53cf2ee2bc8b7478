// Layouts: the law that every way of splitting a model over the ranks trains the same model, as
// code: enumerate the legal layouts, run each on the same batches, compare with one rank.
//
// Threads: one rank, one thread. run_layout is collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/trainer.h"

namespace sinew::model {

// Every TP x PP x DP split of `world` ranks with each ZeRO stage, over all data ranks and over
// groups of every size that divides them, every pipeline schedule, and each number of microbatches
// in `microbatches` that is legal for `base`'s batch; other options are base's.
[[nodiscard]] std::vector<TrainOptions> enumerate_layouts(
    const TrainOptions& base, int world, const std::vector<std::int64_t>& microbatches);
// Every TP x CP x PP x DP split of `world` ranks that shares sequences: sequence parallelism with
// more than one tensor rank, each mode of context parallelism with more than one context rank, both
// together. ZeRO stages 0 to 3 and the groups they cut over take turns; the other options are
// base's.
[[nodiscard]] std::vector<TrainOptions> enumerate_sequence_layouts(const TrainOptions& base,
                                                                   int world);
// Every legal combination of TP x CP x PP x DP, sequence parallelism, mode of context parallelism,
// pipeline schedule, chunks, ZeRO stage and the groups it cuts over, recomputation (none,
// selective, full) and each number of microbatches; other options, precision among them, are
// base's.
[[nodiscard]] std::vector<TrainOptions> enumerate_every_layout(
    const TrainOptions& base, int world, const std::vector<std::int64_t>& microbatches);
// `count` of them, drawn by the seed and in an order of its own; all of them, in that order, where
// there are no more.
[[nodiscard]] std::vector<TrainOptions> draw_layouts(std::vector<TrainOptions> layouts,
                                                     std::size_t count, std::uint64_t seed);
// "tp2 pp2 dp4 zero3/2 1f1b m4": ZeRO 3 over groups of 2
[[nodiscard]] std::string name_of(const TrainOptions& options);

// One batch for a whole run: pseudo-random tokens, every eighth target or so without loss.
struct Batch {
  std::vector<std::int32_t> tokens;   // [batch, T]
  std::vector<std::int32_t> targets;  // -1: no loss
};
[[nodiscard]] Batch make_batch(const TrainPlan& plan, std::uint64_t seed);

struct LayoutRun {
  std::vector<double> losses;
  std::vector<double> norms;
  Trainer::Tensors gradients;        // of the first step
  Trainer::Tensors weights;          // after the last
  std::vector<std::string> names{};  // of the tensors, in model order; empty: as sorted
  int digits = 53;                   // binary, of the weights' type
};
// AdamW's epsilon is at least this here: the gradient of a key bias is 0 in exact arithmetic (a
// softmax does not see it), and AdamW with a tiny epsilon turns its rounding noise into steps of a
// whole learning rate. The noise of bf16 is thousands of times that of f32.
[[nodiscard]] double noise_epsilon(const std::string& dtype);
[[nodiscard]] LayoutRun run_layout(const TrainPlan& plan, comm::Communicator& world,
                                   const Batch& batch, int steps);

// Largest differences, each relative to the largest magnitude of its kind (a tensor, the losses,
// the norms).
struct LayoutError {
  double loss = 0;
  double norm = 0;
  double gradient = 0;
  double weight = 0;
  std::string worst_tensor;  // of gradient
  bool bits_equal = true;    // everything above is the same to the last bit
  // Gradient and weights of one tensor, in units in the last place (of the weights' type) of the
  // tensor's largest magnitude.
  struct OfTensor {
    std::string name;
    double gradient_ulp = 0;
    double weight_ulp = 0;
    double relative = 0;  // the larger of the two
  };
  std::vector<OfTensor> tensors;  // in model order
  // The first in model order whose gradient differs in any bit; empty when none does.
  [[nodiscard]] std::string first_divergent() const;
  // The first whose error is above the bound.
  [[nodiscard]] std::string first_above(double bound) const;
  [[nodiscard]] double largest() const;
};
[[nodiscard]] LayoutError compare_runs(const LayoutRun& reference, const LayoutRun& run);

// What rounding may do to the largest() of a run in this type: see the comment at its definition.
[[nodiscard]] double layout_bound(const std::string& dtype, const std::string& gradients = "auto");

}  // namespace sinew::model
