// Files that people write and name on the command line: schedules and topologies.
//
// Never does: write (output.h does). Threads: pure but for reading the named file.
#pragma once

#include <string>
#include <variant>

#include "sched/base/error.h"
#include "sched/pipeline/schedule.h"
#include "sched/schedule.h"
#include "sched/topology.h"

namespace sinew::tools {

// The whole text of a file. Throws UsageError naming the option, the path and the reason.
[[nodiscard]] std::string read_text(const std::string& option, const std::string& path);

using AnySchedule = std::variant<sched::Schedule, sched::PipeSchedule>;
// The text form of either, told apart by its first word. Throws UsageError naming the path and the
// line.
[[nodiscard]] AnySchedule read_schedule(const std::string& option, const std::string& path);
// What sched::verify says of the schedule of this file, of either kind. Throws UsageError with the
// counterexample drawn unless that is a proof.
template <typename Verdict>
Verdict proved(const std::string& option, const std::string& path, Verdict verdict) {
  if (verdict.proved()) return verdict;
  throw UsageError(option + " '" + path + "' is wrong: " + verdict.failure + "\n" +
                   verdict.drawing);
}

[[nodiscard]] sched::Topology read_topology(const std::string& option, const std::string& path);

}  // namespace sinew::tools
