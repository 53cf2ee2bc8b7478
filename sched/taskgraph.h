// TaskGraph: tasks with durations on resources, with predecessors. Collective and pipeline
// schedules both lower to it; simulating it gives a Timeline, the makespan and the chain of tasks
// that explains the makespan.
//
// Never does: know what a task means, or any unit of time.
// Threads: one graph, one thread.
//
// Terms
//   resource     serves one task at a time: a rank's compute, a port, a link. A task may hold
//                several at once (the sender's port and the receiver's), or none (pure delay).
//   predecessor  a task that must end, and after which `lag` must pass, before this one may begin.
//                Lag is time that holds no resource: the latency of a message whose transfer held
//                the ports.
//   discipline   in which order a resource serves its tasks:
//     kProgramOrder  as they were added: a stream, a rank's program. A task waits for all tasks
//                    added before it on each of its resources.
//     kFirstReady    as their predecessors allow, ties by order of addition: a link that many
//                    share. A task whose turn has come reserves all its resources at once; later
//                    ones never overtake it on them.
//
// Invariants: deterministic; begin >= every predecessor's end + lag; tasks of a resource never
// overlap; no task begins later than its predecessors, resources and discipline force it to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sched/timeline.h"

namespace sinew::sched {

enum class Discipline : std::uint8_t { kProgramOrder, kFirstReady };

struct SimulatedTasks {
  std::vector<double> begin;  // [tasks]
  std::vector<double> end;    // [tasks]
  double makespan = 0;        // latest end; tasks begin at 0
  // Tasks in order of time, each beginning because the one before it ended (plus its lag); the last
  // one ends at the makespan. Empty for an empty graph.
  std::vector<int> critical_path;
};

class TaskGraph {
 public:
  // A resource drawn at (row, lane) of the timeline; row < 0 is not drawn.
  int add_resource(int row, int lane, Discipline discipline = Discipline::kProgramOrder);

  // Returns the task's number: 0, 1, ... in order of addition. duration >= 0. The span named by
  // `label` is drawn once on each resource held; an empty label is not drawn.
  int add_task(double duration, std::span<const int> resources, std::string label = {});
  int add_task(double duration, int resource, std::string label = {});

  // `task` begins at least `lag` after `predecessor` ends. Either may have been added first. lag >=
  // 0.
  void add_predecessor(int task, int predecessor, double lag = 0);

  // Picks a lighter colour for the task's spans; see Span::shade.
  void set_shade(int task, int shade);

  [[nodiscard]] int tasks() const { return static_cast<int>(tasks_.size()); }
  [[nodiscard]] int resources() const { return static_cast<int>(resources_.size()); }

  // O((tasks + edges) log tasks). Throws Error naming a cycle of labels when the predecessors (and
  // program orders) form one: the schedule it came from would deadlock.
  [[nodiscard]] SimulatedTasks simulate() const;
  [[nodiscard]] Timeline timeline(const SimulatedTasks& times, std::string title) const;

 private:
  struct Resource {
    int row;
    int lane;
    Discipline discipline;
    int last_task;  // the most recently added one, -1 before the first
  };
  struct Task {
    double duration;
    std::uint32_t resources_begin;  // into held_
    std::uint32_t resources_count;
    int shade;
    std::string label;
  };
  struct Edge {
    int predecessor;
    int task;
    double lag;
  };

  // The edges by predecessor, and how many each task waits for.
  struct Successors {
    std::vector<std::uint32_t> first;  // [tasks + 1], into edges
    std::vector<std::uint32_t> edges;
    std::vector<std::uint32_t> waits;  // [tasks]
  };
  // When a resource is free again, and the task that held it last.
  struct Free {
    double time;
    int task;
  };

  [[nodiscard]] Successors successors_of() const;
  [[nodiscard]] double occupy(int task, double& begin, int& forced_by,
                              std::vector<Free>& free) const;
  [[noreturn]] void throw_cycle(std::span<const std::uint32_t> waits) const;

  std::vector<Resource> resources_;
  std::vector<Task> tasks_;
  std::vector<int> held_;
  std::vector<Edge> edges_;
};

}  // namespace sinew::sched
