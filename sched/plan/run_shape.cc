#include "sched/plan/run_shape.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/base/text.h"
#include "sched/plan/held.h"

namespace sinew::sched {

namespace {

constexpr std::int64_t kListedMost = 1024;  // larger ones are nobody's number of ranks

// "a, b, c" for the values up to `most` that `is_legal`.
template <typename IsLegal>
std::string legal_values(std::int64_t most, const IsLegal& is_legal) {
  std::string text;
  for (std::int64_t value = 1; value <= most; ++value) {
    if (is_legal(value)) text += (text.empty() ? "" : ", ") + std::to_string(value);
  }
  return text;
}

std::string divisors(std::int64_t value, std::int64_t most) {
  return legal_values(std::min(value, most), [&](std::int64_t d) { return value % d == 0; });
}

// Why tensor ranks of that number cannot share out the model.
std::string fault_of_tp(const ModelShape& model, std::int64_t tp) {
  if (model.heads % tp != 0) return "does not divide the " + counted(model.heads, "head");
  if (model.kv_heads % tp != 0 && tp % model.kv_heads != 0) {
    return "neither divides the " + counted(model.kv_heads, "key/value head") +
           " nor is a multiple of " + (model.kv_heads == 1 ? "it" : "them");
  }
  if (model.hidden % tp != 0) return "does not divide the " + counted(model.hidden, "hidden unit");
  if (model.vocabulary < tp)
    return "is more than the " + counted(model.vocabulary, "row") + " of the vocabulary";
  return {};
}

std::string refuse_tp(const RunShape& run) {
  const std::string fault = fault_of_tp(run.model, run.sizes.tp);
  if (fault.empty()) return {};
  return "tp " + std::to_string(run.sizes.tp) + " " + fault + "; legal tp: " +
         legal_values(std::min(run.model.heads, kListedMost),
                      [&](std::int64_t tp) { return fault_of_tp(run.model, tp).empty(); });
}

// The multiples of `piece` on either side of `value` that are from 1 to `most`.
std::string nearest_multiples(std::int64_t value, std::int64_t piece, std::int64_t most) {
  const std::int64_t below = value / piece * piece;
  const std::int64_t above = below + piece;
  if (above > most) return below == 0 ? "none" : std::to_string(below);
  return below == 0 ? std::to_string(above)
                    : std::to_string(below) + " and " + std::to_string(above);
}

std::string refuse_time(const RunShape& run) {
  if (run.time < 1 || run.time > run.model.positions) {
    return "a sequence of " + std::to_string(run.time) + " does not fit the model, which has " +
           counted(run.model.positions, "position") + "; legal: 1 to " +
           std::to_string(run.model.positions);
  }
  const int cp = run.sizes.cp;
  const std::int64_t pieces = context_pieces(run.context_mode, cp);
  if (run.time % pieces != 0) {
    return "a sequence of " + std::to_string(run.time) + " is not a multiple of " +
           std::to_string(pieces) + " (cp " + std::to_string(cp) + ", cp_mode " +
           std::string(name_of(run.context_mode)) +
           "); the nearest legal: " + nearest_multiples(run.time, pieces, run.model.positions);
  }
  return {};
}

// What the ranks of sequence parallelism and of Ulysses share out.
std::string refuse_shares(const RunShape& run) {
  const int tp = run.sizes.tp;
  const int cp = run.sizes.cp;
  const std::int64_t rows = run.microbatch_size() * run.time / cp;
  if (run.sequence_parallel && rows % tp != 0) {
    return "sequence parallelism cuts the " + std::to_string(rows) +
           " rows of a microbatch (its sequences x positions / cp) by tp " + std::to_string(tp) +
           ", which does not divide them; legal tp: " + divisors(rows, 64);
  }
  if (run.row_chunks != 1 && !run.sequence_parallel) {
    return std::to_string(run.row_chunks) +
           " row chunks without sequence parallelism: no rows are shared out; legal row chunks: 1";
  }
  if (run.row_chunks < 1 || run.row_chunks > kRowChunksMost || rows / tp % run.row_chunks != 0) {
    return std::to_string(run.row_chunks) + " row chunks do not cut the " +
           std::to_string(rows / tp) +
           " rows of a tensor rank into equal parts; legal row chunks: " +
           divisors(rows / tp, kRowChunksMost);
  }
  if (cp == 1 || run.context_mode != ContextMode::kUlysses) return {};
  const std::int64_t heads = run.model.heads / tp;
  const std::int64_t kv_heads = std::max<std::int64_t>(run.model.kv_heads / tp, 1);
  if (heads % cp != 0 || kv_heads % cp != 0) {
    return "cp " + std::to_string(cp) + " with cp_mode ulysses does not divide the " +
           std::to_string(heads) + " heads and " + std::to_string(kv_heads) +
           " key/value heads of a tensor rank; legal cp: " +
           divisors(std::gcd(heads, kv_heads), kListedMost);
  }
  return {};
}

std::string refuse_batch(const RunShape& run) {
  if (run.batch < 1)
    return "batch " + std::to_string(run.batch) + " is not a size; a step has at least 1 sequence";
  if (run.batch % run.sizes.dp != 0) {
    return "batch " + std::to_string(run.batch) + " is not a multiple of dp " +
           std::to_string(run.sizes.dp) + "; legal dp: " + divisors(run.batch, kListedMost);
  }
  const std::int64_t replica = run.batch / run.sizes.dp;
  if (run.microbatches < 1 || replica % run.microbatches != 0) {
    return counted(run.microbatches, "microbatch", "microbatches") +
           (run.microbatches == 1 ? " does" : " do") + " not divide the " +
           counted(replica, "sequence") +
           " of a replica (batch / dp); legal microbatches: " + divisors(replica, kListedMost);
  }
  return {};
}

std::string refuse_shard(const RunShape& run) {
  if (run.zero == Zero::kNone || run.shard == 0) return {};
  if (run.shard > 0 && run.replicas() % run.shard == 0) return {};
  return "shard " + std::to_string(run.shard) + " does not cut the " +
         std::to_string(run.replicas()) + " data ranks (dp x cp) into equal groups; legal shard: " +
         divisors(run.replicas(), kListedMost) + ", 0 for all";
}

// A loaded schedule is made for one p, v and m.
std::string refuse_loaded(const RunShape& run) {
  const PipeSchedule& schedule = *run.loaded;
  const auto differ = [&](const std::string& what, std::int64_t asked, int has) {
    return asked == has ? std::string()
                        : "pipeline schedule '" + schedule.name + "' has " + what + " " +
                              std::to_string(has) + ", not " + std::to_string(asked) +
                              "; legal: " + std::to_string(has);
  };
  for (const std::string& refusal :
       {differ("ranks (pp)", run.sizes.pp, schedule.ranks),
        differ("chunks", run.chunks, schedule.chunks),
        differ("microbatches", run.microbatches, schedule.microbatches)}) {
    if (!refusal.empty()) return refusal;
  }
  return {};
}

std::string refuse_pipeline(const RunShape& run) {
  if (run.loaded) {
    std::string refusal = refuse_loaded(run);
    if (!refusal.empty()) return refusal;
  } else {
    const PipeAlgorithm& algorithm = find_pipe_algorithm(run.schedule);
    const std::string refusal = algorithm.refuse(pipe_params(run));
    if (!refusal.empty()) return "pipeline schedule '" + run.schedule + "' " + refusal;
  }
  const std::int64_t stages = std::int64_t{run.sizes.pp} * run.chunks;
  if (stages > run.model.layers) {
    return "pp " + std::to_string(run.sizes.pp) + " x " + counted(run.chunks, "chunk") + " is " +
           counted(stages, "stage") + ", more than the " + counted(run.model.layers, "layer") +
           "; legal " +
           (run.chunks <= run.model.layers
                ? "pp: 1 to " + std::to_string(run.model.layers / run.chunks)
                : "chunks: 1 to " + std::to_string(run.model.layers));
  }
  return {};
}

}  // namespace

std::string refuse(const RunShape& run) {
  try {
    validate(run.model);
    (void)Grid(run.sizes, run.order);
    for (const auto rule :
         {refuse_tp, refuse_time, refuse_batch, refuse_shares, refuse_shard, refuse_pipeline}) {
      std::string refusal = rule(run);
      if (!refusal.empty()) return refusal;
    }
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

void validate(const RunShape& run) {
  const std::string refusal = refuse(run);
  if (!refusal.empty()) throw UsageError(refusal);
}

std::vector<Recompute> RunShape::recompute_kinds() const {
  if (!recompute_layers.empty()) return recompute_layers;
  return std::vector(static_cast<std::size_t>(model.layers), recompute);
}

std::int64_t activation_bytes(const RunShape& run, const PipeSchedule& schedule, int pp_rank) {
  const std::vector<Recompute> kinds = run.recompute_kinds();
  const Held held = held_at_most(schedule, pp_rank, kinds);
  ActivationShape shape = {.batch = run.microbatch_size(),
                           .time = run.time / run.sizes.cp,
                           .tp = run.sizes.tp,
                           .sequence_parallel = run.sequence_parallel,
                           .recompute = Recompute::kNone};
  const auto layer_bytes = [&](Recompute kind) {
    shape.recompute = kind;
    return saved_bytes(layer_saved_tensors(run.model, shape, run.precision));
  };
  std::int64_t bytes = held.microbatches * layer_bytes(Recompute::kFull);  // an output is an input
  for (const Recompute kind : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
    bytes += held.of(kind) * layer_bytes(kind);
  return bytes;
}

void UnitSizes::add(std::int64_t unit, bool is_layer) {
  total += unit;
  largest = std::max(largest, unit);
  if (is_layer) {
    layers += unit;
  } else {
    largest_end = std::max(largest_end, unit);
  }
}

UnitSizes unit_sizes(const RunShape& run, const ModelPart& part) {
  const ModelShape& model = run.model;
  const std::int64_t multiple = run.zero == Zero::kNone ? 1 : run.shards();
  const auto whole = [&](std::int64_t count) {
    return (count + multiple - 1) / multiple * multiple;
  };
  const bool gpt2 = model.family == Family::kGpt2;
  const std::int64_t table =
      whole(partition(model.vocabulary, part.tp, part.tp_rank).count * model.channels);
  UnitSizes units;
  const std::int64_t layer = whole(layer_parameter_count(model, part.tp, part.tp_rank));
  for (std::int64_t i = 0; i < part.layers; ++i) units.add(layer, true);
  if (part.has_embedding) units.add(table, false);
  if (part.has_embedding && gpt2) units.add(whole(model.positions * model.channels), false);
  if (part.has_head) units.add(whole((gpt2 ? 2 : 1) * model.channels), false);
  if (part.has_head && !(model.tied && part.has_embedding)) units.add(table, false);
  if (part.has_head && part.has_embedding && model.tied) units.shared_table = table;
  return units;
}

std::int64_t working_bytes(const RunShape& run, const UnitSizes& units) {
  Precision sums = run.precision;  // the buffers hold sums
  sums.gradient = run.precision.statistic();
  const bool cuts = run.zero >= Zero::kGradients && run.shards() > 1;
  const bool narrow = run.precision.gradient < sums.gradient;
  const std::int64_t share =
      units.shared_table / (cuts ? run.shards() : 1) * run.precision.gradient;
  if (cuts && run.keeps_gathered()) {
    return gathered_bytes(Zero::kGradients, units.largest, 1, sums) +
           kept_bytes(units.layers, units.largest_end, sums) + share;
  }
  const Zero as = cuts ? run.zero : narrow ? Zero::kGradients : Zero::kNone;
  return gathered_bytes(as, units.largest, 1, sums) + share;
}

PipeParams pipe_params(const RunShape& run) { return {run.sizes.pp, run.chunks, run.microbatches}; }

ModelPart part_of(const RunShape& run, const PipeSchedule& schedule, int pp_rank, int tp_rank) {
  return part_of(run.model, schedule.placement, pp_rank, run.sizes.tp, tp_rank);
}

}  // namespace sinew::sched
