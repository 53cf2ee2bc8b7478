#include "sched/matching.h"

#include <algorithm>

namespace sinew::sched {

namespace {

struct End {
  std::uint64_t key;  // source, target, lane
  std::uint32_t rank;
  std::uint32_t step;
  bool sends;
};

std::vector<End> ends_of(const Schedule& schedule) {
  std::vector<End> ends;
  for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    const std::vector<Step>& steps = schedule.programs[rank].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      const bool sends = step.verb == Verb::kSend;
      if (!sends && !is_receive(step.verb)) continue;
      const std::uint64_t source = sends ? rank : step.peer;
      const std::uint64_t target = sends ? step.peer : rank;
      ends.push_back({source << 32 | target << 8 | step.lane, static_cast<std::uint32_t>(rank),
                      static_cast<std::uint32_t>(i), sends});
    }
  }
  std::stable_sort(ends.begin(), ends.end(),
                   [](const End& a, const End& b) { return a.key < b.key; });
  return ends;
}

}  // namespace

Matching match(const Schedule& schedule) {
  Matching matching;
  matching.positions.resize(schedule.programs.size());
  for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    matching.positions[rank].resize(schedule.programs[rank].steps.size());
  }
  std::uint64_t open = ~std::uint64_t{0};
  for (const End& end : ends_of(schedule)) {
    if (end.key != open) {
      matching.lanes.push_back({static_cast<int>(end.key >> 32),
                                static_cast<int>(end.key >> 8 & 0xffffff),
                                static_cast<int>(end.key & 0xff),
                                {},
                                {}});
      open = end.key;
    }
    Lane& lane = matching.lanes.back();
    std::vector<std::uint32_t>& steps = end.sends ? lane.sends : lane.receives;
    matching.positions[end.rank][end.step] = {static_cast<std::int32_t>(matching.lanes.size()) - 1,
                                              static_cast<std::uint32_t>(steps.size())};
    steps.push_back(end.step);
  }
  return matching;
}

std::vector<std::uint32_t> first_numbers(const Schedule& schedule) {
  std::vector<std::uint32_t> first = {0};
  for (const Program& program : schedule.programs) {
    first.push_back(first.back() + static_cast<std::uint32_t>(program.steps.size()));
  }
  return first;
}

}  // namespace sinew::sched
