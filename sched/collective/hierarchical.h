// Hierarchical all-reduce: algorithms inside an algorithm, one per level of a machine: a
// reduce-scatter inside every group of ranks, an all-reduce of each part between the groups, an
// all-gather inside the groups. Any rows of the table do for each; the outer one may be
// hierarchical itself.
//
// Never does: know a topology; the caller says which ranks are near each other: those with equal
// rank / group.
// Threads: pure.
#pragma once

#include <optional>
#include <string>

#include "sched/collective/registry.h"

namespace sinew::sched {

struct Levels {
  const Algorithm* reduce_scatter = nullptr;  // inside groups
  const Algorithm* all_reduce = nullptr;      // between groups
  const Algorithm* all_gather = nullptr;      // inside groups
  int group = 1;                              // ranks per group; divides the world
};

// Empty, or in one line why these levels do not fit the world.
[[nodiscard]] std::string refuse_levels(int world, const Levels& levels);
// Of the whole vector, for a builder of an all_reduce with that many chunks.
[[nodiscard]] int level_chunks(int world, const Levels& levels);
void write_levels(Builder& b, const Levels& levels);
// The sum of the levels' closed forms: what the schedule costs at most.
[[nodiscard]] Cost levels_cost(int world, const Levels& levels);

// Throws UsageError when refused. keep as in Builder.
[[nodiscard]] Schedule hierarchical_all_reduce(int world, const Levels& levels,
                                               std::optional<int> keep = std::nullopt);

}  // namespace sinew::sched
