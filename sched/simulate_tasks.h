// Tasks: a Schedule as the simulator sees it: the parts of a joined message are one task, and every
// task knows who waits for it.
//
// Never does: keep time (simulate.cc).
// Threads: plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/schedule.h"

namespace sinew::sched {

struct Task {
  Verb verb = Verb::kCopy;
  std::uint16_t peer = 0;
  std::uint32_t first_step = 0;  // its steps follow each other
  std::uint32_t steps = 1;
  std::int32_t lane = -1;                 // into TaskProgram::lanes; -1 for a local task
  std::uint32_t lane_index = 0;           // which message of the lane
  std::uint32_t port_index = 0;           // which of its rank's sends, or receives, it is
  std::uint32_t compute_index = 0;        // which of its rank's computations it is
  std::uint32_t waits = 0;                // for how many tasks of its program
  std::vector<std::uint32_t> successors;  // tasks of its program that wait for it
};

// One FIFO stream, as tasks of the source's and the target's program.
struct TaskLane {
  int source = 0;
  int target = 0;
  std::vector<std::uint32_t> sends;
  std::vector<std::uint32_t> receives;
};

struct TaskPrograms {
  std::vector<std::vector<Task>> programs;  // [rank]
  std::vector<TaskLane> lanes;
};

// Requires the form that verify proves.
[[nodiscard]] TaskPrograms lower_to_tasks(const Schedule& schedule);

// Number of the chunk that a slot of this program is sized by.
[[nodiscard]] std::uint32_t chunk_of(const Program& program, Slot slot, std::uint32_t offset);

}  // namespace sinew::sched
