// Selection: which rows of the registries a subcommand works on, from --op and --algo. Collectives
// are named by their operation; pipeline schedules are the operation "pipeline".
//
// Threads: pure, except use_selection, which changes the environment: before threads start.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sched/collective/registry.h"
#include "sched/pipeline/schedule.h"

namespace sinew::tools {

inline constexpr std::string_view kPipelineOp = "pipeline";

struct Selection {
  std::vector<const sched::Algorithm*> collectives;
  std::vector<const sched::PipeAlgorithm*> pipelines;
};

// Both are names joined by commas, or "all". Throws UsageError naming the legal names, also when an
// algorithm belongs to none of the operations.
[[nodiscard]] Selection select(const std::string& ops, const std::string& algorithms);

// The operations that have an algorithm, in the order of the registry.
[[nodiscard]] std::vector<sched::Collective> known_collectives();

// Makes `auto` of every communicator made from now on read this file first (comm/selection_file.h),
// in the place of the one that the environment names. An empty path changes nothing.
void use_selection(const std::string& path);

// "4", "1:64" (both ends included), and such joined by commas. Throws UsageError.
[[nodiscard]] std::vector<int> parse_worlds(const std::string& text, int max);

// "1,2" or "1,2,1,0.1": forward, backward, weight gradient, transfer. Throws UsageError.
[[nodiscard]] sched::PipeTimes parse_times(const std::string& text);

}  // namespace sinew::tools
