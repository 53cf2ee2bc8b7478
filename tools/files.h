// Files that people write and name on the command line: schedules and topologies.
//
// Threads: pure but for reading and writing the named file.
#pragma once

#include <string>
#include <variant>

#include "sched/pipeline/schedule.h"
#include "sched/schedule.h"
#include "sched/topology.h"

namespace sinew::tools {

// The whole text of a file. Throws UsageError naming the option and the path.
[[nodiscard]] std::string read_text(const std::string& option, const std::string& path);
// Writes it whole. Throws UsageError naming the option and the path.
void write_text(const std::string& option, const std::string& path, const std::string& text);

using AnySchedule = std::variant<sched::Schedule, sched::PipeSchedule>;
// The text form of either, told apart by its first word. Throws UsageError naming the path and the
// line.
[[nodiscard]] AnySchedule read_schedule(const std::string& option, const std::string& path);
[[nodiscard]] sched::Topology read_topology(const std::string& option, const std::string& path);

}  // namespace sinew::tools
