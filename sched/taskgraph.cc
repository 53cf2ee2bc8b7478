#include "sched/taskgraph.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::sched {

namespace {

using Ready = std::pair<double, int>;  // when its predecessors allow a task, its number

// From the task that ends last (the first of equals) back along what forced each begin.
std::vector<int> chain_to_last(const std::vector<double>& end, const std::vector<int>& forced_by) {
  std::vector<int> chain;
  int task = static_cast<int>(std::max_element(end.begin(), end.end()) - end.begin());
  if (end.empty()) return chain;
  for (; task >= 0; task = forced_by[static_cast<std::size_t>(task)]) chain.push_back(task);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

}  // namespace

int TaskGraph::add_resource(int row, int lane, Discipline discipline) {
  resources_.push_back({row, lane, discipline, -1});
  return resources() - 1;
}

int TaskGraph::add_task(double duration, int resource, std::string label) {
  return add_task(duration, std::span<const int>(&resource, 1), std::move(label));
}

int TaskGraph::add_task(double duration, std::span<const int> held, std::string label) {
  CHECK_GE(duration, 0.0);
  const int task = tasks();
  tasks_.push_back({duration, static_cast<std::uint32_t>(held_.size()),
                    static_cast<std::uint32_t>(held.size()), 0, std::move(label)});
  for (const int resource : held) {
    CHECK_GE(resource, 0);
    CHECK_LT(resource, resources());
    Resource& state = resources_[static_cast<std::size_t>(resource)];
    CHECK_NE(state.last_task, task);  // a task holds each resource once
    if (state.discipline == Discipline::kProgramOrder && state.last_task >= 0) {
      edges_.push_back({state.last_task, task, 0});
    }
    state.last_task = task;
    held_.push_back(resource);
  }
  return task;
}

void TaskGraph::add_predecessor(int task, int predecessor, double lag) {
  CHECK_GE(lag, 0.0);
  CHECK_GE(std::min(task, predecessor), 0);
  CHECK_LT(std::max(task, predecessor), tasks());
  edges_.push_back({predecessor, task, lag});
}

void TaskGraph::set_shade(int task, int shade) {
  CHECK_LT(task, tasks());
  tasks_[static_cast<std::size_t>(task)].shade = shade;
}

// First come, first served in one pass: tasks leave the queue by (time at which their predecessors
// allow them, number). Successors are never allowed earlier than the task that releases them, so
// the times leaving the queue do not decrease and each resource serves its tasks in that order.
SimulatedTasks TaskGraph::simulate() const {
  const std::size_t count = tasks_.size();
  const Successors successors = successors_of();
  std::vector<std::uint32_t> waits = successors.waits;
  SimulatedTasks result;
  result.begin.assign(count, 0);
  result.end.assign(count, 0);
  std::vector<int> forced_by(count, -1);  // the task whose end set this one's begin
  std::vector<Free> free(resources_.size(), Free{0, -1});
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> queue;
  for (std::size_t i = 0; i < count; ++i) {
    if (waits[i] == 0) queue.emplace(0.0, static_cast<int>(i));
  }
  std::size_t finished = 0;
  for (; !queue.empty(); ++finished) {
    const int task = queue.top().second;
    queue.pop();
    const auto index = static_cast<std::size_t>(task);
    result.end[index] = occupy(task, result.begin[index], forced_by[index], free);
    for (std::uint32_t i = successors.first[index]; i < successors.first[index + 1]; ++i) {
      const Edge& edge = edges_[successors.edges[i]];
      const auto next = static_cast<std::size_t>(edge.task);
      if (result.end[index] + edge.lag > result.begin[next]) {
        result.begin[next] = result.end[index] + edge.lag;
        forced_by[next] = task;
      }
      if (--waits[next] == 0) queue.emplace(result.begin[next], edge.task);
    }
  }
  if (finished != count) throw_cycle(waits);
  for (const double end : result.end) result.makespan = std::max(result.makespan, end);
  result.critical_path = chain_to_last(result.end, forced_by);
  return result;
}

TaskGraph::Successors TaskGraph::successors_of() const {
  Successors result;
  result.waits.assign(tasks_.size(), 0);
  result.first.assign(tasks_.size() + 1, 0);
  for (const Edge& edge : edges_) {
    ++result.waits[static_cast<std::size_t>(edge.task)];
    ++result.first[static_cast<std::size_t>(edge.predecessor) + 1];
  }
  for (std::size_t i = 0; i < tasks_.size(); ++i) result.first[i + 1] += result.first[i];
  result.edges.resize(edges_.size());
  std::vector<std::uint32_t> next(result.first.begin(), result.first.end() - 1);
  for (std::uint32_t e = 0; e < edges_.size(); ++e) {
    result.edges[next[static_cast<std::size_t>(edges_[e].predecessor)]++] = e;
  }
  return result;
}

// Lets a task that its predecessors allow at `begin` take its resources: moves begin to when the
// last of them is free, names the task that held it, and returns the end.
double TaskGraph::occupy(int task, double& begin, int& forced_by, std::vector<Free>& free) const {
  const Task& taken = tasks_[static_cast<std::size_t>(task)];
  const auto held = std::span(held_).subspan(taken.resources_begin, taken.resources_count);
  for (const int resource : held) {
    const Free& state = free[static_cast<std::size_t>(resource)];
    if (state.time <= begin) continue;
    begin = state.time;
    forced_by = state.task;
  }
  const double end = begin + taken.duration;
  for (const int resource : held) free[static_cast<std::size_t>(resource)] = {end, task};
  return end;
}

// Every blocked task waits for a blocked task, so walking predecessors must come back to a task
// already seen.
void TaskGraph::throw_cycle(std::span<const std::uint32_t> waits) const {
  std::vector<int> blocked_by(tasks_.size(), -1);
  int task = -1;
  for (const Edge& edge : edges_) {
    if (waits[static_cast<std::size_t>(edge.predecessor)] == 0) continue;
    blocked_by[static_cast<std::size_t>(edge.task)] = edge.predecessor;
    task = edge.task;
  }
  std::vector<bool> seen(tasks_.size(), false);
  while (!seen[static_cast<std::size_t>(task)]) {
    seen[static_cast<std::size_t>(task)] = true;
    task = blocked_by[static_cast<std::size_t>(task)];
  }
  const auto name = [this](int number) {
    const std::string& label = tasks_[static_cast<std::size_t>(number)].label;
    return label.empty() ? "task " + std::to_string(number) : label;
  };
  std::string cycle = name(task);
  constexpr int kNamesMax = 16;
  int names = 1;
  for (int next = blocked_by[static_cast<std::size_t>(task)]; next != task;
       next = blocked_by[static_cast<std::size_t>(next)]) {
    if (++names <= kNamesMax) cycle += " waits for " + name(next);
  }
  if (names > kNamesMax) cycle += " waits for ... (" + std::to_string(names) + " tasks)";
  throw Error("tasks wait for each other: " + cycle + " waits for " + name(task));
}

Timeline TaskGraph::timeline(const SimulatedTasks& times, std::string title) const {
  CHECK_EQ(times.begin.size(), tasks_.size());
  Timeline timeline;
  timeline.title = std::move(title);
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const Task& task = tasks_[i];
    if (task.label.empty()) continue;
    for (std::uint32_t h = 0; h < task.resources_count; ++h) {
      const Resource& resource =
          resources_[static_cast<std::size_t>(held_[task.resources_begin + h])];
      if (resource.row < 0) continue;
      timeline.spans.push_back(
          {resource.row, resource.lane, task.label, times.begin[i], times.end[i], task.shade});
    }
  }
  std::stable_sort(timeline.spans.begin(), timeline.spans.end(), [](const Span& a, const Span& b) {
    return std::tuple(a.row, a.lane, a.begin_s) < std::tuple(b.row, b.lane, b.begin_s);
  });
  return timeline;
}

}  // namespace sinew::sched
