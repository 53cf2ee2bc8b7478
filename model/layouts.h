// Layouts: the law that every way of splitting a model over the ranks trains the same model, as
// code: enumerate the legal layouts, run each on the same batches, compare with one rank.
//
// Threads: one rank, one thread. run_layout is collective.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/trainer.h"

namespace sinew::model {

// Every TP x PP x DP split of `world` ranks with each ZeRO stage (3 with weights gathered again for
// backward and with them kept), over all data ranks and over groups of every size that divides
// them, every pipeline schedule, and each number of microbatches
// in `microbatches` that is legal for `base`'s batch; other options are base's.
[[nodiscard]] std::vector<TrainOptions> enumerate_layouts(
    const TrainOptions& base, int world, const std::vector<std::int64_t>& microbatches);
// Every TP x CP x PP x DP split of `world` ranks that shares sequences: sequence parallelism with
// more than one tensor rank, each mode of context parallelism with more than one context rank, both
// together. ZeRO stages 0 to 3 and the groups they cut over take turns; the other options are
// base's.
[[nodiscard]] std::vector<TrainOptions> enumerate_sequence_layouts(const TrainOptions& base,
                                                                   int world);
// Every legal combination of TP x CP x PP x DP, sequence parallelism (every second one with
// products in two row chunks), mode of context parallelism, pipeline schedule, chunks, ZeRO stage
// and the groups it cuts over, recomputation (none, selective, full) and each number of
// microbatches; other options, precision among them, are base's.
[[nodiscard]] std::vector<TrainOptions> enumerate_every_layout(
    const TrainOptions& base, int world, const std::vector<std::int64_t>& microbatches);
// `count` of them, drawn by the seed and in an order of its own; all of them, in that order, where
// there are no more.
[[nodiscard]] std::vector<TrainOptions> draw_layouts(std::vector<TrainOptions> layouts,
                                                     std::size_t count, std::uint64_t seed);
// "tp2 sp/2 pp2 dp4 zero3/2 kept 1f1b m4": sequence parallelism with products in 2 row chunks, ZeRO
// 3 over groups of 2 with weights kept from forward to backward
[[nodiscard]] std::string name_of(const TrainOptions& options);

// What the law is held to: small models that have between them what layouts may get wrong (tied and
// untied heads, grouped queries down to one key/value head, GPT-2's vocabulary), each with four
// layers, so that every schedule has two chunks on two ranks, and four heads. The first one takes
// every layout that any of them does.
struct LawModel {
  std::string_view name;
  std::string_view json;
};
[[nodiscard]] std::span<const LawModel> law_models();
// What numbers are kept in: one name for dtype, rounding and gradients.
struct LawPrecision {
  std::string_view name;
  std::string_view dtype;
  std::string_view rounding;
  std::string_view gradients;
  void apply(TrainOptions& options) const;
};
[[nodiscard]] std::span<const LawPrecision> law_precisions();
// With dropout and with clipping that is active (at 0.05: a first norm is near 1), so long that the
// moments have a history. The batch is the least of 8 sequences or more of which each of `world`
// ranks can have four microbatches or a like part of one, the sequences the shortest of 8 positions
// or more of which each rank can have two pieces.
inline constexpr int kLawSteps = 5;
[[nodiscard]] TrainOptions law_options(int world);
// The layouts of the first model, each for the next of the models in turn, from number `first` on;
// where that one cannot be split so, for the one after it.
[[nodiscard]] std::vector<TrainOptions> enumerate_in_turns(
    const TrainOptions& base, int world, const std::vector<std::int64_t>& microbatches,
    std::uint64_t first);

// One batch for a whole run: pseudo-random tokens. The loss mask is ragged: every sequence has one
// up to a position of its own (some as far as their end, some nowhere) and there in seven of eight
// places or so.
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
    double gradient = 0;  // relative
    double weight = 0;
  };
  std::vector<OfTensor> tensors;  // in model order
  // The first in model order whose gradient differs in any bit; empty when none does.
  [[nodiscard]] std::string first_divergent() const;
  // The first whose gradient's error is above the bound; where there is none, the first whose
  // weights' is (a wrong gradient of one tensor moves the norm, and with it all weights).
  [[nodiscard]] std::string first_above(double bound) const;
  [[nodiscard]] double largest() const;
};
[[nodiscard]] LayoutError compare_runs(const LayoutRun& reference, const LayoutRun& run);

// What rounding may do to the largest() of a run in this type: see the comment at its definition.
[[nodiscard]] double layout_bound(const std::string& dtype, const std::string& gradients = "auto");

}  // namespace sinew::model
