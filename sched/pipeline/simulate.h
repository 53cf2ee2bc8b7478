// simulate: when each action of a pipeline schedule happens, given the durations.
//
// Never does: prove (a schedule that verify refuses may be refused here by Error, or timed to no
// purpose), know seconds (any unit). Threads: pure.
//
// Model: a rank computes one action at a time in program order; a receive blocks the program until
// its message is there; a send is issued at its place in the program and travels beside computation
// for `transfer`, one after the other per rank and direction, with as many buffered messages as it
// takes.
#pragma once

#include <span>
#include <vector>

#include "sched/pipeline/schedule.h"
#include "sched/taskgraph.h"
#include "sched/timeline.h"

namespace sinew::sched {

struct PipeSimulation {
  double makespan = 0;  // from the first action to the end of the last, over all ranks
  double ideal = 0;     // computation of the busiest rank
  // Longest time from a rank's first to its last action, over ideal, minus 1: what the closed forms
  // state. Ranks of some schedules start late and end early or late (a parallelogram), which costs
  // nothing when steps follow each other; makespan_bubble counts that as well.
  double bubble = 0;
  double makespan_bubble = 0;  // makespan / ideal - 1
  Timeline timeline;
};

// Lane 0 is computation; lanes 1 and 2 are messages forward and backward, where `transfer` is not
// 0. Labels are the verb and microbatch ("F3", "B3", "W3"; messages ">3", "<3"); the chunk is the
// shade. times: of every stage alike, or one per stage.
[[nodiscard]] PipeSimulation simulate(const PipeSchedule& schedule,
                                      std::span<const PipeTimes> times);
[[nodiscard]] PipeSimulation simulate(const PipeSchedule& schedule, const PipeTimes& times);

}  // namespace sinew::sched
