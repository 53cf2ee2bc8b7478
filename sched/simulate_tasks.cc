#include "sched/simulate_tasks.h"

#include <algorithm>

#include "sched/matching.h"

namespace sinew::sched {

namespace {

std::vector<Task> lower_program(const Program& program) {
  std::vector<Task> tasks;
  std::vector<std::uint32_t> task_of;  // [step]
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    if (step.joined != 0 && !tasks.empty()) {
      ++tasks.back().steps;
    } else {
      Task task;
      task.verb = step.verb;
      task.peer = step.peer;
      task.first_step = i;
      tasks.push_back(std::move(task));
    }
    const auto self = static_cast<std::uint32_t>(tasks.size() - 1);
    task_of.push_back(self);
    for (int d = 0; d < step.dependences; ++d) {
      std::vector<std::uint32_t>& out = tasks[task_of[program.dependences[next++]]].successors;
      // The parts of a task follow each other, so a repeated wait is the last one in the list.
      if (!out.empty() && out.back() == self) continue;
      out.push_back(self);
      ++tasks[self].waits;
    }
  }
  return tasks;
}

}  // namespace

std::uint32_t chunk_of(const Program& program, Slot slot, std::uint32_t offset) {
  const std::uint32_t index = slot.index() + offset;
  return slot.space() == Space::kScratch ? program.scratch_chunk[index] : index;
}

TaskPrograms lower_to_tasks(const Schedule& schedule) {
  TaskPrograms lowered;
  for (const Program& program : schedule.programs) {
    lowered.programs.push_back(lower_program(program));
  }
  const Matching matching = match(schedule);
  for (const Lane& lane : matching.lanes) {
    lowered.lanes.push_back({lane.source, lane.target, {}, {}});
  }
  for (std::size_t rank = 0; rank < lowered.programs.size(); ++rank) {
    std::uint32_t sends = 0;
    std::uint32_t receives = 0;
    std::uint32_t computations = 0;
    for (std::uint32_t i = 0; i < lowered.programs[rank].size(); ++i) {
      Task& task = lowered.programs[rank][i];
      if (task.verb != Verb::kSend && task.verb != Verb::kRecv) task.compute_index = computations++;
      task.lane = matching.positions[rank][task.first_step].lane;
      if (task.lane < 0) continue;
      TaskLane& lane = lowered.lanes[static_cast<std::size_t>(task.lane)];
      const bool is_send = task.verb == Verb::kSend;
      task.port_index = is_send ? sends++ : receives++;
      std::vector<std::uint32_t>& end = is_send ? lane.sends : lane.receives;
      task.lane_index = static_cast<std::uint32_t>(end.size());
      end.push_back(i);
    }
  }
  return lowered;
}

}  // namespace sinew::sched
