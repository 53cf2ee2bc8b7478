#include "model/traffic.h"

#include <algorithm>
#include <utility>

#include "sched/base/partition.h"
#include "sched/plan/held.h"

namespace sinew::model {

namespace {

using sched::Pattern;

constexpr std::array<std::string_view, kGroups> kNames = {
    "tensor", "context",          "pipeline", "tied table",
    "data",   "key/value copies", "shard",    "shard groups"};

constexpr std::array kCounted = {
    std::pair{sched::Collective::kAllReduce, Pattern::kAllReduce},
    std::pair{sched::Collective::kReduceScatter, Pattern::kReduceScatter},
    std::pair{sched::Collective::kAllGather, Pattern::kAllGather},
};

Amount amount_of(const comm::Counter& counter, int sign) {
  return {sign * counter.calls, sign * counter.payload_bytes,
          sign * static_cast<double>(counter.sent_bytes), sign * counter.seconds};
}

Group group_of(const sched::Traffic& traffic) {
  if (traffic.what == sched::kCopiesGradients) return Group::kCopies;
  if (traffic.axis == sched::Axis::kTp) return Group::kTensor;
  if (traffic.axis == sched::Axis::kCp) return Group::kContext;
  if (traffic.axis == sched::Axis::kDp) return Group::kData;
  return traffic.pattern == Pattern::kMessage ? Group::kPipeline : Group::kTie;
}

// Calls of one collective on arrays of `elements` each.
Amount collective(Pattern pattern, std::int64_t calls, std::int64_t elements, int element_bytes,
                  int ranks) {
  const std::int64_t bytes = elements * element_bytes;
  const double sent = pattern == Pattern::kAllReduce
                          ? sum_sent_bytes(bytes, ranks)
                          : static_cast<double>(bytes) * (ranks - 1) / ranks;
  return {calls, calls * bytes, static_cast<double>(calls) * sent};
}

}  // namespace

comm::Communicator* communicator_of(const Parallel& parallel, Group group) {
  switch (group) {
    case Group::kTensor:
      return parallel.tensor();
    case Group::kContext:
      return parallel.context();
    case Group::kCopies:
      return parallel.copies();
    case Group::kPipeline:
      return parallel.pipeline();
    case Group::kTie:
      return parallel.tie();
    case Group::kData:
      return parallel.data();
    case Group::kShard:
      return parallel.hybrid() ? parallel.shard() : nullptr;
    case Group::kShardGroups:
      return parallel.shard_groups();
  }
  __builtin_unreachable();
}

std::string_view name_of(Group group) { return kNames[static_cast<std::size_t>(group)]; }

Amount& Amount::operator+=(const Amount& other) {
  calls += other.calls;
  payload_bytes += other.payload_bytes;
  sent_bytes += other.sent_bytes;
  seconds += other.seconds;
  return *this;
}

Amount& Traffic::at(Group group, Pattern pattern) {
  return amounts_[static_cast<std::size_t>(group)][static_cast<std::size_t>(pattern)];
}

const Amount& Traffic::at(Group group, Pattern pattern) const {
  return amounts_[static_cast<std::size_t>(group)][static_cast<std::size_t>(pattern)];
}

double Traffic::seconds() const {
  double sum = 0;
  for (const auto& of_group : amounts_) {
    for (const Amount& amount : of_group) sum += amount.seconds;
  }
  return sum;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  for (std::size_t group = 0; group < amounts_.size(); ++group) {
    for (std::size_t pattern = 0; pattern < amounts_[group].size(); ++pattern)
      amounts_[group][pattern] += other.amounts_[group][pattern];
  }
  return *this;
}

void Traffic::add_counters(const Parallel& parallel, int sign) {
  for (std::size_t i = 0; i < kGroups; ++i) {
    const auto group = static_cast<Group>(i);
    const comm::Communicator* communicator = communicator_of(parallel, group);
    if (communicator == nullptr) continue;
    const comm::Counters& counters = communicator->counters();
    for (const auto& [op, pattern] : kCounted)
      at(group, pattern) += amount_of(counters.collective[static_cast<std::size_t>(op)], sign);
    const auto sent = sign * counters.send.sent_bytes;
    at(group, Pattern::kMessage) += {sign * counters.send.calls, sent, static_cast<double>(sent),
                                     sign * (counters.send.seconds + counters.recv.seconds)};
  }
}

namespace {

bool has_both_ends(const FlatLayout& flat) {
  const auto any = [&](auto&& holds) {
    return std::any_of(flat.parameters.begin(), flat.parameters.end(), holds);
  };
  return any([](const Parameter& p) { return p.layout.tied && !p.second_copy; }) &&
         any([](const Parameter& p) { return p.final_norm; });
}

// How often a layer's weights are gathered in a step where they are cut.
std::int64_t layer_gathers(const sched::RunShape& run, const sched::PipeSchedule& schedule,
                           int layer) {
  if (!run.keeps_gathered()) return 2 * std::int64_t{run.microbatches};
  int stage = 0;
  for (;; ++stage) {
    const Part part = partition(run.model.layers, schedule.stages(), stage);
    if (layer < part.offset + part.count) break;
  }
  return sched::kept_spans(schedule, stage);
}

// Calls of a step for one unit over the data ranks.
void add_unit(const sched::RunShape& run, const sched::PipeSchedule& schedule,
              const FlatLayout& flat, std::size_t index, Traffic& traffic) {
  const Unit& unit = flat.units[index];
  const bool hybrid = run.zero != sched::Zero::kNone && run.shard_groups() > 1;
  const int ranks = run.zero == sched::Zero::kNone ? run.replicas() : run.shards();
  const std::int64_t m = run.microbatches;
  const bool tied = flat.parameters[unit.first].layout.tied;
  const std::int64_t ends = tied && has_both_ends(flat) ? 2 : 1;
  const auto add = [&](Pattern pattern, std::int64_t calls, int element_bytes) {
    if (ranks == 1) return;
    traffic.at(hybrid ? Group::kShard : Group::kData, pattern) +=
        collective(pattern, calls, unit.count, element_bytes, ranks);
  };
  const int gradient = run.precision.gradient;
  if (hybrid) {
    traffic.at(Group::kShardGroups, Pattern::kAllReduce) +=
        collective(Pattern::kAllReduce, 1, unit.count / ranks, gradient, run.shard_groups());
  }
  const int parameter = run.precision.parameter;
  switch (run.zero) {
    case sched::Zero::kNone:
      add(Pattern::kAllReduce, 1, gradient);
      return;
    case sched::Zero::kOptimizer:
      add(Pattern::kReduceScatter, 1, gradient);
      add(Pattern::kAllGather, 1, parameter);
      return;
    case sched::Zero::kGradients:
      add(Pattern::kReduceScatter, m * ends, gradient);
      add(Pattern::kAllGather, 1, parameter);
      return;
    case sched::Zero::kParameters:
      add(Pattern::kReduceScatter, m * ends, gradient);
      add(Pattern::kAllGather,
          unit.layer >= 0 ? layer_gathers(run, schedule, unit.layer) : m * ends, parameter);
      return;
  }
}

// The tied table's gradient between two ends: a rank's piece of it where gradients are cut.
std::int64_t tie_elements(const sched::RunShape& run, const FlatLayout& flat,
                          std::int64_t elements) {
  if (run.zero < sched::Zero::kGradients || run.shards() == 1) return elements;
  for (const Unit& unit : flat.units) {
    if (flat.parameters[unit.first].layout.tied) return unit.count / run.shards();
  }
  return elements;
}

}  // namespace

Traffic predict_traffic(const sched::RunShape& run, const sched::PipeSchedule& schedule,
                        const sched::PerAxis& coordinates, const FlatLayout& flat,
                        std::span<const Piece> owned, std::int64_t model_parameters) {
  Traffic traffic;
  for (const sched::Traffic& t : sched::traffic_of(run, schedule, coordinates.pp, coordinates.tp)) {
    const Group group = group_of(t);
    Amount& amount = traffic.at(group, t.pattern);
    if (t.pattern == Pattern::kMessage) {
      const std::int64_t bytes = t.calls * t.elements * t.element_bytes;
      amount += {t.calls, bytes, static_cast<double>(bytes)};
    } else if (t.what == sched::kNormGradients || t.what == sched::kCopiesGradients) {
      const auto over = group == Group::kCopies ? PartialOver::kCopies : PartialOver::kTensor;
      std::int64_t count = 0;
      for (const Piece& piece : partial_pieces(flat, over, owned)) count += piece.count;
      if (count > 0) amount += collective(t.pattern, 1, count, t.element_bytes, t.ranks);
    } else if (group != Group::kData) {
      const std::int64_t elements =
          group == Group::kTie ? tie_elements(run, flat, t.elements) : t.elements;
      amount += collective(t.pattern, t.calls, elements, t.element_bytes, t.ranks);
    }
  }
  for (std::size_t i = 0; i < flat.units.size() && run.replicas() > 1; ++i)
    add_unit(run, schedule, flat, i, traffic);
  constexpr int kScalarBytes = 8;
  const auto add_sum = [&](Group group, int ranks, std::int64_t elements) {
    if (ranks > 1)
      traffic.at(group, Pattern::kAllReduce) +=
          collective(Pattern::kAllReduce, 1, elements, kScalarBytes, ranks);
  };
  add_sum(Group::kTensor, run.sizes.tp, model_parameters);
  add_sum(Group::kPipeline, run.sizes.pp, model_parameters);
  if (run.zero != sched::Zero::kNone) {
    add_sum(run.shard_groups() > 1 ? Group::kShard : Group::kData, run.shards(), model_parameters);
  }
  add_sum(Group::kData, run.replicas(), 1);
  return traffic;
}

}  // namespace sinew::model
