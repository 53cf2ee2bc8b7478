// Selection: which rows of the registries a subcommand works on, from --op and --algo. Collectives
// are named by their operation; pipeline schedules are the operation "pipeline".
//
// Threads: pure, except use_selection, which changes the environment: before threads start.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sched/collective/registry.h"
#include "sched/pipeline/schedule.h"
#include "sched/pipeline/simulate.h"
#include "tools/args.h"
#include "tools/json_lines.h"

namespace sinew::tools {

inline constexpr std::string_view kPipelineOp = "pipeline";

struct Selection {
  std::vector<const sched::Algorithm*> collectives;
  std::vector<const sched::PipeAlgorithm*> pipelines;
  std::vector<std::string> missing;  // what keep_existing left out
  [[nodiscard]] std::size_t size() const { return collectives.size() + pipelines.size(); }
};

// Both are names joined by commas, or "all". Throws UsageError naming the legal names, also when an
// algorithm belongs to none of the operations.
[[nodiscard]] Selection select(const std::string& ops, const std::string& algorithms);

// The rows that exist where the subcommand asks for them, by two predicates. A row that was asked
// for alone stays: generating it says its rule. Throws UsageError when none of several exists;
// `where` says what was asked of them, as "3 ranks".
[[nodiscard]] Selection keep_existing(
    const Selection& selection, const std::string& where,
    const std::function<bool(const sched::Algorithm&)>& collective_exists,
    const std::function<bool(const sched::PipeAlgorithm&)>& pipeline_exists);
// One line that says what was left out, or nothing.
[[nodiscard]] std::string missing_line(const Selection& selection, const std::string& where);

// Refuses options that were given and are of the other kind of schedule than those that are there.
void refuse_unused(const Args& args, bool collectives,
                   const std::vector<std::string>& of_collectives, bool pipelines,
                   const std::vector<std::string>& of_pipelines);

// Refuses --root where it was given and no collective that is there has one.
void refuse_root(const Args& args, const std::vector<const sched::Algorithm*>& collectives);

// Throws UsageError unless 0 <= root < world.
void require_root(int root, int world);

// Model chunks per rank: what was asked, or the schedule's usual number for 0.
[[nodiscard]] int chunks_of(const sched::PipeAlgorithm& row, int asked);

// The names that --dtype and --reduce take, joined for help.
[[nodiscard]] std::string dtype_names();
[[nodiscard]] std::string reduce_names();

// Characters that the longest name of a schedule takes: a table's column of names.
[[nodiscard]] int longest_name();

// The operations that have an algorithm, in the order of the registry.
[[nodiscard]] std::vector<sched::Collective> known_collectives();

// Their names joined by commas, or all, each once in the order given. Throws UsageError.
[[nodiscard]] std::vector<sched::Collective> parse_collectives(const std::string& text);

// Makes `auto` of every communicator made from now on read this file first (comm/selection_file.h),
// in the place of the one that the environment names. An empty path changes nothing. Throws
// UsageError when the file cannot be read.
void use_selection(const std::string& path);

// "4", "1:64" (both ends included), and such joined by commas. Throws UsageError.
[[nodiscard]] std::vector<int> parse_worlds(const std::string& text, int max);

// --bytes as in parse_byte_range (sched/base/units.h).
[[nodiscard]] std::vector<std::int64_t> parse_sizes(const std::string& text);

// "1,2" or "1,2,1,0.1": forward, backward, weight gradient, transfer. Throws UsageError.
[[nodiscard]] sched::PipeTimes parse_times(const std::string& text);

// What a line of --json says first of a schedule: operation, algorithm, ranks.
[[nodiscard]] JsonRecord record_of(std::string_view op, std::string_view algorithm, int ranks);
// And of a pipeline schedule that was simulated. closed_form_bubble: none of one from a file.
[[nodiscard]] JsonRecord record_of(const sched::PipeSchedule& schedule,
                                   const sched::PipeSimulation& simulation,
                                   std::optional<double> closed_form_bubble);

}  // namespace sinew::tools
