#include "sched/pipeline/schedule.h"

#include <algorithm>

#include "sched/base/check.h"
#include "sched/pipeline/algorithms.h"

namespace sinew::sched {

bool splits_backward(const PipeSchedule& schedule) {
  return std::any_of(schedule.actions.begin(), schedule.actions.end(), [](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(),
                       [](const PipeAction& action) { return action.verb == PipeVerb::kWeight; });
  });
}

std::vector<int> stages_of(const PipeSchedule& schedule, int rank) {
  std::vector<int> stages;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    if (schedule.rank_of(stage) == rank) stages.push_back(stage);
  }
  return stages;
}

std::vector<std::uint16_t> looping_placement(int ranks, int chunks) {
  std::vector<std::uint16_t> placement;
  for (int stage = 0; stage < ranks * chunks; ++stage) {
    placement.push_back(static_cast<std::uint16_t>(stage % ranks));
  }
  return placement;
}

std::vector<std::uint16_t> v_placement(int ranks, int chunks) {
  std::vector<std::uint16_t> placement = looping_placement(ranks, chunks);
  for (int stage = 0; stage < ranks * chunks; ++stage) {
    const bool back = stage / ranks % 2 == 1;
    if (back)
      placement[static_cast<std::size_t>(stage)] =
          static_cast<std::uint16_t>(ranks - 1 - stage % ranks);
  }
  return placement;
}

PipeSchedule empty_schedule(std::string_view name, const PipeParams& params,
                            std::vector<std::uint16_t> placement) {
  PipeSchedule schedule;
  schedule.name = name;
  schedule.ranks = params.ranks;
  schedule.chunks = params.chunks;
  schedule.microbatches = params.microbatches;
  CHECK_EQ(placement.size(), static_cast<std::size_t>(schedule.stages()));
  schedule.placement = std::move(placement);
  schedule.actions.resize(static_cast<std::size_t>(params.ranks));
  return schedule;
}

void append(PipeSchedule& schedule, int rank, PipeVerb verb, int stage, int microbatch) {
  CHECK_EQ(schedule.rank_of(stage), rank);
  schedule.actions[static_cast<std::size_t>(rank)].push_back(
      {verb, static_cast<std::uint16_t>(stage), static_cast<std::uint32_t>(microbatch)});
}

std::string refuse_chunks(const PipeParams& params) {
  if (params.chunks == 1) return {};
  return "has 1 model chunk per rank, not " + std::to_string(params.chunks);
}

}  // namespace sinew::sched
