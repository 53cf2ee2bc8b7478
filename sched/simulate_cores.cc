#include "sched/simulate_cores.h"

#include "sched/base/check.h"

namespace sinew::sched {

Cores::Cores(const Topology& topology) {
  const auto world = static_cast<std::size_t>(topology.world);
  for (const CoresRule& rule : topology.cores) groups_.push_back({{}, rule.count, false});
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    const int named = topology.cores_of(static_cast<int>(rank));
    group_of_.push_back(named >= 0 ? static_cast<std::uint32_t>(named)
                                   : static_cast<std::uint32_t>(groups_.size()));
    if (named < 0) groups_.emplace_back();
    groups_[group_of_.back()].ranks.push_back(rank);
  }
  queues_.resize(world);
  busy_.resize(world);
}

void Cores::add(const Item& item) {
  queues_[item.rank].push_back({item, added_++});
  touch(item.rank);
}

void Cores::done(std::uint32_t rank) {
  CHECK(busy_[rank]);
  busy_[rank] = false;
  ++groups_[group_of_[rank]].idle;
  touch(rank);
}

void Cores::touch(std::uint32_t rank) {
  Group& group = groups_[group_of_[rank]];
  if (!group.touched) touched_.push_back(group_of_[rank]);
  group.touched = true;
}

std::vector<Cores::Item> Cores::begin() {
  std::vector<Item> begun;
  for (const std::uint32_t number : touched_) {
    Group& group = groups_[number];
    group.touched = false;
    while (group.idle > 0) {
      const std::int64_t rank = next(group);
      if (rank < 0) break;
      const auto at = static_cast<std::size_t>(rank);
      begun.push_back(queues_[at].front().item);
      queues_[at].pop_front();
      busy_[at] = true;
      --group.idle;
    }
  }
  touched_.clear();
  return begun;
}

std::int64_t Cores::next(const Group& group) const {
  std::int64_t first = -1;
  for (const std::uint32_t rank : group.ranks) {
    if (busy_[rank] || queues_[rank].empty()) continue;
    if (first < 0 ||
        queues_[rank].front().number < queues_[static_cast<std::size_t>(first)].front().number)
      first = rank;
  }
  return first;
}

}  // namespace sinew::sched
