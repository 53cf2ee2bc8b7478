#include "sched/plan/volume.h"

#include <algorithm>
#include <array>

#include "sched/base/partition.h"
#include "sched/plan/held.h"

namespace sinew::sched {

namespace {

constexpr std::array<std::string_view, 4> kPatternNames = {"all_reduce", "reduce_scatter",
                                                           "all_gather", "message"};

class Lister {
 public:
  Lister(const RunShape& run, const PipeSchedule& schedule, int pp_rank, int tp_rank)
      : run_(run),
        schedule_(schedule),
        pp_rank_(pp_rank),
        tp_rank_(tp_rank),
        part_(part_of(run, schedule, pp_rank, tp_rank)),
        m_(run.microbatches),
        rows_(run.microbatch_size() * run.time / run.sizes.cp) {}

  std::vector<Traffic> list() {
    tensor_axis();
    context_axis();
    pipeline_axis();
    data_axis();
    return std::move(traffic_);
  }

 private:
  void add(Axis axis, std::string what, Pattern pattern, Phase phase, int ranks, std::int64_t calls,
           std::int64_t elements, int element_bytes) {
    if (ranks <= 1 || calls == 0) return;
    traffic_.push_back(
        {axis, std::move(what), pattern, phase, ranks, calls, elements, element_bytes});
  }

  void tensor(const std::string& what, Pattern pattern, Phase phase, std::int64_t calls,
              std::int64_t elements) {
    add(Axis::kTp, what, pattern, phase, run_.sizes.tp, calls, elements, run_.precision.parameter);
  }

  // Sums of activations; under sequence parallelism a scatter and a gather stand in the place of
  // each.
  void layer_sums(const std::string& what, Phase phase, std::int64_t calls) {
    if (run_.sequence_parallel) {
      const std::int64_t elements = rows_ * run_.model.channels;
      tensor(what, Pattern::kAllGather, phase, calls, elements);
      tensor(what, Pattern::kReduceScatter, phase, calls * run_.row_chunks,
             elements / run_.row_chunks);
    } else {
      tensor(what, Pattern::kAllReduce, phase, calls, rows_ * run_.model.channels);
    }
  }

  void tensor_axis() {
    const std::int64_t layers = part_.layers * m_;
    layer_sums("layer sums", Phase::kForward, 2 * layers);
    layer_sums("layer sums again", Phase::kBackward, 2 * full_layers() * m_);
    layer_sums("layer gradients", Phase::kBackward, 2 * layers);
    if (run_.sequence_parallel) {
      tensor("norms again, for their weights", Pattern::kAllGather, Phase::kBackward, 2 * layers,
             rows_ * run_.model.channels);
    }
    partial_gradients();
    const std::int64_t activations = rows_ * run_.model.channels;
    if (part_.has_embedding && run_.sequence_parallel) {
      tensor("token table", Pattern::kReduceScatter, Phase::kForward, m_, activations);
      tensor("token table gradient", Pattern::kAllGather, Phase::kBackward, m_, activations);
    } else if (part_.has_embedding) {
      tensor("token table", Pattern::kAllReduce, Phase::kForward, m_, activations);
    }
    if (!part_.has_head) return;
    add(Axis::kTp, "loss", Pattern::kAllReduce, Phase::kForward, run_.sizes.tp, 3 * m_, rows_,
        run_.precision.statistic());
    if (run_.sequence_parallel) {
      tensor("head input", Pattern::kAllGather, Phase::kForward, m_, activations);
      tensor("head gradient", Pattern::kReduceScatter, Phase::kBackward, m_, activations);
    } else {
      tensor("head gradient", Pattern::kAllReduce, Phase::kBackward, m_, activations);
    }
  }

  // Layers of this rank under full recomputation.
  std::int64_t full_layers() const {
    const std::vector<Recompute> kinds = run_.recompute_kinds();
    std::int64_t count = 0;
    for (const int stage : stages_of(schedule_, pp_rank_)) {
      const Part part = partition(run_.model.layers, schedule_.stages(), stage);
      const auto first = kinds.begin() + part.offset;
      count += std::count(first, first + part.count, Recompute::kFull);
    }
    return count;
  }

  // Once per step: gradients that tensor ranks hold parts of.
  void partial_gradients() {
    const std::int64_t c = run_.model.channels;
    const std::int64_t norm = run_.model.family == Family::kGpt2 ? 2 * c : c;
    const std::int64_t norms = (2 * part_.layers + (part_.has_head ? 1 : 0)) * norm;
    const auto sum = [&](std::string_view what, int ranks, std::int64_t elements) {
      add(Axis::kTp, std::string(what), Pattern::kAllReduce, Phase::kStep, ranks,
          elements > 0 ? 1 : 0, elements, run_.precision.gradient);
    };
    if (run_.sequence_parallel) sum(kNormGradients, run_.sizes.tp, norms);
    const auto copies = static_cast<int>(run_.sizes.tp / run_.model.kv_heads);
    sum(kCopiesGradients, copies, part_.layers * 2 * run_.model.head_size() * c);
  }

  void context_axis() {
    const int c = run_.sizes.cp;
    const std::int64_t heads = run_.model.heads / run_.sizes.tp;
    const std::int64_t kv_heads = std::max<std::int64_t>(run_.model.kv_heads / run_.sizes.tp, 1);
    const std::int64_t d = run_.model.head_size();
    const std::int64_t layers = part_.layers * m_;
    const std::int64_t again = full_layers() * m_;
    const auto messages = [&](const std::string& what, Phase phase, std::int64_t count,
                              std::int64_t elements) {
      add(Axis::kCp, what, Pattern::kMessage, phase, c, count, elements, run_.precision.parameter);
    };
    if (run_.context_mode == ContextMode::kUlysses) {
      const std::int64_t qkv = rows_ * (heads + 2 * kv_heads) * d / c;
      const std::int64_t output = rows_ * heads * d / c;
      messages("queries, keys and values", Phase::kForward, layers * (c - 1), qkv);
      messages("outputs", Phase::kForward, layers * (c - 1), output);
      messages("queries, keys and values again", Phase::kBackward, again * (c - 1), qkv);
      messages("outputs again", Phase::kBackward, again * (c - 1), output);
      const std::int64_t sum = run_.precision.statistic() / run_.precision.parameter;
      messages("gradients and row sums of outputs", Phase::kBackward, layers * (c - 1),
               output + rows_ * heads / c * sum);
      messages("gradients of queries, keys and values", Phase::kBackward, layers * (c - 1), qkv);
      return;
    }
    const std::int64_t pair = 2 * rows_ * kv_heads * d;  // keys and values of a rank
    messages("keys and values", Phase::kForward, layers * (c - 1), pair);
    messages("keys and values again", Phase::kBackward, (layers + again) * (c - 1), pair);
    add(Axis::kCp, "their gradients", Pattern::kMessage, Phase::kBackward, c, layers * c, pair,
        run_.precision.statistic());
  }

  void pipeline_axis() {
    const std::int64_t elements =
        rows_ * run_.model.channels / (run_.sequence_parallel ? run_.sizes.tp : 1);
    std::int64_t forward = 0;
    std::int64_t backward = 0;
    for (const int stage : stages_of(schedule_, pp_rank_)) {
      const auto crosses = [&](int other) {
        return other >= 0 && other < schedule_.stages() && schedule_.rank_of(other) != pp_rank_;
      };
      forward += crosses(stage + 1) ? m_ : 0;
      backward += crosses(stage - 1) ? m_ : 0;
    }
    add(Axis::kPp, "activations to the next stage", Pattern::kMessage, Phase::kForward,
        run_.sizes.pp, forward, elements, run_.precision.parameter);
    add(Axis::kPp, "gradients to the stage before", Pattern::kMessage, Phase::kBackward,
        run_.sizes.pp, backward, elements, run_.precision.parameter);
    const bool two_tables = run_.model.tied && part_.has_embedding != part_.has_head;
    if (two_tables) {
      const std::int64_t table =
          partition(run_.model.vocabulary, run_.sizes.tp, tp_rank_).count * run_.model.channels;
      add(Axis::kPp, "tied table", Pattern::kAllReduce, Phase::kStep, 2, 1, table,
          run_.precision.gradient);
    }
  }

  void data_axis() {
    const std::int64_t count = parameter_count(run_.model, part_);
    const bool cuts = run_.zero != Zero::kNone;
    const int ranks = cuts ? run_.shards() : run_.replicas();
    if (cuts) {
      add(Axis::kDp, "gradients over groups", Pattern::kAllReduce, Phase::kStep,
          run_.shard_groups(), 1, partition(count, ranks, 0).count, run_.precision.gradient);
    }
    const auto gradients = [&](Pattern pattern, Phase phase, std::int64_t calls) {
      add(Axis::kDp, "gradients", pattern, phase, ranks, calls, count, run_.precision.gradient);
    };
    const auto parameters = [&](Phase phase, std::int64_t calls) {
      add(Axis::kDp, "parameters", Pattern::kAllGather, phase, ranks, calls, count,
          run_.precision.parameter);
    };
    switch (run_.zero) {
      case Zero::kNone:
        gradients(Pattern::kAllReduce, Phase::kStep, 1);
        break;
      case Zero::kOptimizer:
        gradients(Pattern::kReduceScatter, Phase::kStep, 1);
        parameters(Phase::kStep, 1);
        break;
      case Zero::kGradients:
        gradients(Pattern::kReduceScatter, Phase::kBackward, m_);
        parameters(Phase::kStep, 1);
        break;
      case Zero::kParameters:
        if (run_.keeps_gathered()) {
          kept_parameters(ranks, count);
        } else {
          parameters(Phase::kForward, m_);
          parameters(Phase::kBackward, m_);
        }
        gradients(Pattern::kReduceScatter, Phase::kBackward, m_);
        break;
    }
  }

  // The ends are used once a microbatch.
  void kept_parameters(int ranks, std::int64_t count) {
    const auto gather = [&](std::int64_t calls, std::int64_t elements) {
      add(Axis::kDp, "parameters", Pattern::kAllGather, Phase::kForward, ranks, calls, elements,
          run_.precision.parameter);
    };
    std::int64_t ends = count;
    for (const int stage : stages_of(schedule_, pp_rank_)) {
      const std::int64_t layers = partition(run_.model.layers, schedule_.stages(), stage).count *
                                  layer_parameter_count(run_.model, run_.sizes.tp, tp_rank_);
      gather(kept_spans(schedule_, stage), layers);
      ends -= layers;
    }
    if (ends > 0) gather(m_, ends);
  }

  const RunShape& run_;
  const PipeSchedule& schedule_;
  const int pp_rank_;
  const int tp_rank_;
  const ModelPart part_;
  const std::int64_t m_;
  const std::int64_t rows_;  // of activations of a microbatch on this rank
  std::vector<Traffic> traffic_;
};

}  // namespace

std::string_view name_of(Pattern pattern) {
  return kPatternNames[static_cast<std::size_t>(pattern)];
}

std::int64_t Traffic::group_elements() const {
  switch (pattern) {
    case Pattern::kAllReduce:
      return calls * 2 * (ranks - 1) * elements;
    case Pattern::kReduceScatter:
    case Pattern::kAllGather:
      return calls * (ranks - 1) * elements;
    case Pattern::kMessage:
      return calls * elements;
  }
  __builtin_unreachable();
}

double Traffic::sent_elements() const {
  const auto all = static_cast<double>(group_elements());
  return pattern == Pattern::kMessage ? all : all / ranks;
}

std::vector<Traffic> traffic_of(const RunShape& run, const PipeSchedule& schedule, int pp_rank,
                                int tp_rank) {
  return Lister(run, schedule, pp_rank, tp_rank).list();
}

}  // namespace sinew::sched
