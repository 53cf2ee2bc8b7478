// RunShape: everything about a training run that its memory, traffic and time depend on, and the
// rules that make one legal.
//
// Never does: know the machine (planner.h does) or files.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sched/pipeline/schedule.h"
#include "sched/plan/context.h"
#include "sched/plan/grid.h"
#include "sched/plan/memory.h"
#include "sched/plan/model_shape.h"

namespace sinew::sched {

struct RunShape {
  ModelShape model;
  PerAxis sizes = {1, 1, 1, 1};
  std::string order = std::string(kDefaultOrder);
  std::int64_t batch = 1;         // sequences of a whole step, over all ranks
  std::int64_t time = 1;          // T, positions of a sequence
  int microbatches = 1;           // per data-parallel replica and step
  std::string schedule = "1f1b";  // a row of the table of pipeline schedules
  std::optional<PipeSchedule>
      loaded{};    // a proved one of no table, which `schedule` then only names
  int chunks = 1;  // v
  Zero zero = Zero::kNone;
  int shard = 0;  // ranks that ZeRO cuts over: neighbours among dp x cp, which the groups of them
                  // divide (hybrid sharding); 0: all
  // Under ZeRO 3: a layer's gathered weights are freed after its forward and gathered again for its
  // backward; or kept from the one to the other.
  bool reshard_after_forward = true;
  bool sequence_parallel = false;
  // Under sequence parallelism: pieces in which a layer's products over shared rows are computed,
  // each summed over the tensor ranks while the next is computed.
  int row_chunks = 1;
  ContextMode context_mode = ContextMode::kZigzag;
  Recompute recompute = Recompute::kNone;
  std::vector<Recompute> recompute_layers{};  // [layers]; empty: all like `recompute`
  Precision precision = kAllF32;

  // Sequences of one microbatch on one rank; exact once validated.
  [[nodiscard]] std::int64_t microbatch_size() const { return batch / sizes.dp / microbatches; }
  [[nodiscard]] int world() const { return sizes.tp * sizes.cp * sizes.pp * sizes.dp; }
  // [layers]
  [[nodiscard]] std::vector<Recompute> recompute_kinds() const;
  // Ranks that see different data: dp x cp.
  [[nodiscard]] int replicas() const { return sizes.dp * sizes.cp; }
  // Ranks over which ZeRO cuts, and groups of them, which hold the same pieces.
  [[nodiscard]] int shards() const { return shard > 0 ? shard : replicas(); }
  [[nodiscard]] int shard_groups() const { return replicas() / shards(); }
  [[nodiscard]] bool keeps_gathered() const {
    return zero == Zero::kParameters && !reshard_after_forward;
  }
};

inline constexpr int kRowChunksMost = 16;  // more calls than that hide nothing more

// Empty when the run is legal, else the first rule it breaks in one line that names the value, the
// rule and the legal values.
[[nodiscard]] std::string refuse(const RunShape& run);
// Throws UsageError with that line.
void validate(const RunShape& run);

// What a rank's forwards keep for its backwards, at most at once, as model/ keeps it: the saved
// tensors of the layers that are held, and one output of each stage and microbatch.
[[nodiscard]] std::int64_t activation_bytes(const RunShape& run, const PipeSchedule& schedule,
                                            int pp_rank);

// The units in which ZeRO moves a rank's weights: each layer, each table, the final norm. In
// elements, each unit rounded up to a multiple of the ranks that share it.
struct UnitSizes {
  std::int64_t total = 0;
  std::int64_t largest = 0;
  std::int64_t largest_end = 0;  // of those that are no layer
  std::int64_t layers = 0;       // all layers together
  // The tied table where both its uses are on this rank: the head's share of its gradient is kept
  // beside the embedding's until the step, so that every pipeline adds them in the same order.
  std::int64_t shared_table = 0;
  void add(std::int64_t unit, bool is_layer);
};
[[nodiscard]] UnitSizes unit_sizes(const RunShape& run, const ModelPart& part);
// Buffers beside parameters, gradients and optimizer state: where gradients are cut, or narrower
// than their sums, two of the largest unit for those of a microbatch; where weights are cut, two
// more for them, or with weights kept for backward one for each layer and two for the ends; and the
// share of a tied table's gradient.
[[nodiscard]] std::int64_t working_bytes(const RunShape& run, const UnitSizes& units);

[[nodiscard]] PipeParams pipe_params(const RunShape& run);
// The part of the model on pipeline rank `pp_rank`, tensor rank `tp_rank`.
[[nodiscard]] ModelPart part_of(const RunShape& run, const PipeSchedule& schedule, int pp_rank,
                                int tp_rank);

}  // namespace sinew::sched
