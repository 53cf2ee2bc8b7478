#include "sched/topology.h"

#include <fmt/format.h>

#include <algorithm>

#include "sched/base/check.h"

namespace sinew::sched {

namespace {

RankSet range(int first, int last) { return {{{first, last}}}; }

// All ranks but those of [first, last].
RankSet outside(int first, int last, int world) {
  RankSet set;
  if (first > 0) set.ranges.emplace_back(0, first - 1);
  if (last + 1 < world) set.ranges.emplace_back(last + 1, world - 1);
  return set;
}

template <typename Rule>
bool names(const Rule& rule, int from, int to) {
  const bool there = rule.from.contains(from) && rule.to.contains(to);
  return there || (rule.both_ways && rule.from.contains(to) && rule.to.contains(from));
}

// Null: none does.
template <typename Rule>
const Rule* last_that_names(const std::vector<Rule>& rules, int from, int to) {
  const auto found = std::find_if(rules.rbegin(), rules.rend(),
                                  [&](const Rule& rule) { return names(rule, from, to); });
  return found == rules.rend() ? nullptr : &*found;
}

}  // namespace

bool RankSet::contains(int rank) const {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const auto& part) { return part.first <= rank && rank <= part.second; });
}

Link Topology::link(int from, int to) const {
  const LinkRule* rule = last_that_names(links, from, to);
  return rule == nullptr ? Link{} : rule->link;
}

std::optional<std::pair<int, int>> Topology::unlinked() const {
  std::vector<int> changes;  // [target] rules that begin there less those that ended
  const auto mark = [&](const RankSet& targets) {
    for (const auto& [first, last] : targets.ranges) {
      ++changes[static_cast<std::size_t>(first)];
      --changes[static_cast<std::size_t>(last) + 1];
    }
  };
  for (int from = 0; from < world; ++from) {
    changes.assign(static_cast<std::size_t>(world) + 1, 0);
    for (const LinkRule& rule : links) {
      if (rule.from.contains(from)) mark(rule.to);
      if (rule.both_ways && rule.to.contains(from)) mark(rule.from);
    }
    int rules = 0;
    for (int to = 0; to < world; ++to) {
      rules += changes[static_cast<std::size_t>(to)];
      if (rules == 0 && to != from) return std::pair{from, to};
    }
  }
  return std::nullopt;
}

Link Topology::work(int from, int to) const {
  const WorkRule* rule = last_that_names(works, from, to);
  return rule == nullptr ? Link{} : rule->each_end;
}

double Topology::reduction(int from, int to) const {
  const WorkRule* rule = last_that_names(works, from, to);
  return reduce_s_per_byte + (rule == nullptr ? 0 : rule->reduce_s_per_byte);
}

int Topology::cores_of(int rank) const {
  for (std::size_t i = cores.size(); i > 0; --i) {
    if (cores[i - 1].ranks.contains(rank)) return static_cast<int>(i - 1);
  }
  return -1;
}

std::vector<int> Topology::shares_of(int from, int to) const {
  std::vector<int> held;
  for (const ShareRule& rule : shares) {
    if (!rule.from.contains(from) || !rule.to.contains(to)) continue;
    const auto first = std::find_if(shares.begin(), shares.end(), [&](const ShareRule& other) {
      return other.name == rule.name;
    });
    held.push_back(static_cast<int>(first - shares.begin()));
  }
  std::sort(held.begin(), held.end());
  held.erase(std::unique(held.begin(), held.end()), held.end());
  return held;
}

Topology homogeneous(int world, Link link, double reduce_s_per_byte) {
  CHECK_GE(world, 1);
  Topology topology;
  topology.world = world;
  topology.reduce_s_per_byte = reduce_s_per_byte;
  topology.links.push_back({range(0, world - 1), range(0, world - 1), true, link});
  return topology;
}

Topology two_level(const TwoLevel& shape) {
  CHECK_GE(shape.world, 1);
  CHECK_GE(shape.ranks_per_host, 1);
  Topology topology = homogeneous(shape.world, shape.between, shape.reduce_s_per_byte);
  topology.name = "two-level";
  for (int first = 0; first < shape.world; first += shape.ranks_per_host) {
    const int last = std::min(first + shape.ranks_per_host, shape.world) - 1;
    const RankSet host = range(first, last);
    const RankSet others = outside(first, last, shape.world);
    topology.links.push_back({host, host, true, shape.inside});
    if (others.ranges.empty()) continue;
    const int number = first / shape.ranks_per_host;
    topology.shares.push_back({fmt::format("out{}", number), host, others});
    topology.shares.push_back({fmt::format("in{}", number), others, host});
  }
  return topology;
}

}  // namespace sinew::sched
