#include "sched/plan/held.h"

#include <algorithm>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/base/text.h"

namespace sinew::sched {

namespace {

using Counts = std::array<std::int64_t, kRecomputeKinds>;

// Of each stage: its layers by kind.
std::vector<Counts> layers_of_stages(const PipeSchedule& schedule,
                                     std::span<const Recompute> kinds) {
  std::vector<Counts> stages(static_cast<std::size_t>(schedule.stages()), Counts{});
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const Part part = partition(static_cast<std::int64_t>(kinds.size()), schedule.stages(), stage);
    for (std::int64_t i = 0; i < part.count; ++i) {
      const Recompute kind = kinds[static_cast<std::size_t>(part.offset + i)];
      ++stages[static_cast<std::size_t>(stage)][static_cast<std::size_t>(kind)];
    }
  }
  return stages;
}

}  // namespace

Held held_at_most(const PipeSchedule& schedule, int rank, std::span<const Recompute> kinds) {
  CHECK_LT(rank, schedule.ranks);
  const std::vector<Counts> stages = layers_of_stages(schedule, kinds);
  const PipeVerb last = splits_backward(schedule) ? PipeVerb::kWeight : PipeVerb::kBackward;
  Held now;
  Held most;
  for (const PipeAction& action : schedule.actions[static_cast<std::size_t>(rank)]) {
    if (action.verb != PipeVerb::kForward && action.verb != last) continue;
    const std::int64_t sign = action.verb == PipeVerb::kForward ? 1 : -1;
    now.microbatches += sign;
    most.microbatches = std::max(most.microbatches, now.microbatches);
    for (std::size_t kind = 0; kind < kRecomputeKinds; ++kind) {
      now.layers[kind] += sign * stages[action.stage][kind];
      most.layers[kind] = std::max(most.layers[kind], now.layers[kind]);
    }
  }
  return most;
}

std::int64_t kept_spans(const PipeSchedule& schedule, int stage) {
  std::int64_t now = 0;
  std::int64_t spans = 0;
  for (const PipeAction& action :
       schedule.actions[static_cast<std::size_t>(schedule.rank_of(stage))]) {
    if (action.stage != stage) continue;
    if (action.verb == PipeVerb::kForward && now++ == 0) ++spans;
    if (action.verb == PipeVerb::kBackward) --now;
  }
  CHECK_EQ(now, 0);
  return spans;
}

std::vector<Recompute> parse_recompute_list(const std::string& text, std::int64_t layers) {
  std::vector<Recompute> kinds;
  for (const std::string_view name : split(text, ',')) kinds.push_back(parse_recompute(trim(name)));
  const auto count = static_cast<std::int64_t>(kinds.size());
  if (count == 1) kinds.assign(static_cast<std::size_t>(layers), kinds.front());
  if (count != 1 && count != layers) {
    throw UsageError("recompute names " + std::to_string(count) + " layers of " +
                     std::to_string(layers) +
                     "; it is none, selective or full, once for all layers or once for each");
  }
  return kinds;
}

}  // namespace sinew::sched
