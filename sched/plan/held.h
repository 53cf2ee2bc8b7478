// Held: what a rank of a pipeline holds at once of what forwards leave for backwards: the sizes of
// its activation memory.
//
// Never does: know bytes (memory.h does). Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sched/pipeline/schedule.h"
#include "sched/plan/memory.h"

namespace sinew::sched {

inline constexpr std::size_t kRecomputeKinds = 3;

// Most at one time, each by itself: a microbatch counts from its forward to its backward, or its
// weight gradient where the backward is split.
struct Held {
  std::array<std::int64_t, kRecomputeKinds> layers = {};  // by Recompute: (layer, microbatch) pairs
  std::int64_t microbatches = 0;                          // (stage, microbatch) pairs
  [[nodiscard]] std::int64_t of(Recompute kind) const {
    return layers[static_cast<std::size_t>(kind)];
  }
  friend bool operator==(const Held&, const Held&) = default;
};

// kinds: [layers of the model], cut over the stages by partition(). O(actions + layers).
[[nodiscard]] Held held_at_most(const PipeSchedule& schedule, int rank,
                                std::span<const Recompute> kinds);

// How often in a step a stage goes from no microbatch between its forward and its backward to one:
// as often are weights gathered that are kept from forward to backward. From 1 to the number of
// microbatches. O(actions).
[[nodiscard]] std::int64_t kept_spans(const PipeSchedule& schedule, int stage);

// One name for all layers, or one for each, joined by commas; throws UsageError.
[[nodiscard]] std::vector<Recompute> parse_recompute_list(const std::string& text,
                                                          std::int64_t layers);

}  // namespace sinew::sched
