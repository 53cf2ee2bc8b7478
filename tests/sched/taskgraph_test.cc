// Laws of the task graph: hand-counted graphs, then invariants and optimality on seeded random
// ones.
#include "sched/taskgraph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "sched/base/error.h"

namespace sinew::sched {
namespace {

TEST(TaskGraph, ResourceInProgramOrderNeverOvertakes) {
  TaskGraph graph;
  const int a = graph.add_resource(0, 0);
  const int b = graph.add_resource(1, 0);
  const int first = graph.add_task(2, a, "first");
  const int blocked = graph.add_task(1, b, "blocked");
  const int behind = graph.add_task(1, b, "behind");
  graph.add_predecessor(blocked, first, 0.5);
  const SimulatedTasks times = graph.simulate();
  EXPECT_EQ(times.begin, (std::vector<double>{0, 2.5, 3.5}));
  EXPECT_EQ(times.makespan, 4.5);
  EXPECT_EQ(times.critical_path, (std::vector<int>{first, blocked, behind}));
}

TEST(TaskGraph, FirstReadyResourceServesWhoComesFirst) {
  TaskGraph graph;
  const int a = graph.add_resource(0, 0);
  const int link = graph.add_resource(1, 0, Discipline::kFirstReady);
  const int first = graph.add_task(2, a);
  const int late = graph.add_task(1, link);
  const int early = graph.add_task(3, link);
  graph.add_predecessor(late, first);
  const SimulatedTasks times = graph.simulate();
  EXPECT_EQ(times.begin[static_cast<std::size_t>(early)], 0);
  EXPECT_EQ(times.begin[static_cast<std::size_t>(late)], 3);
  EXPECT_EQ(times.critical_path, (std::vector<int>{early, late}));
}

TEST(TaskGraph, TaskHoldsAllItsResources) {
  TaskGraph graph;
  const int out = graph.add_resource(0, 0, Discipline::kFirstReady);
  const int in = graph.add_resource(1, 0, Discipline::kFirstReady);
  const int ports[] = {out, in};
  (void)graph.add_task(1, in);
  (void)graph.add_task(1, ports, "message");
  (void)graph.add_task(1, out);
  const SimulatedTasks times = graph.simulate();
  EXPECT_EQ(times.begin, (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(graph.timeline(times, "two ports").spans.size(), 2U);
}

TEST(TaskGraph, TaskWithoutResourceIsPureDelayAndEmptyGraphIsInstant) {
  TaskGraph graph;
  EXPECT_EQ(graph.simulate().makespan, 0);
  EXPECT_TRUE(graph.simulate().critical_path.empty());
  const int delay = graph.add_task(5, std::span<const int>());
  (void)graph.add_task(4, std::span<const int>());
  EXPECT_EQ(graph.simulate().makespan, 5);
  EXPECT_EQ(graph.simulate().critical_path, (std::vector<int>{delay}));
}

TEST(TaskGraph, CycleIsNamedNotWaitedFor) {
  TaskGraph graph;
  const int a = graph.add_resource(0, 0);
  const int b = graph.add_resource(1, 0);
  const int recv_a = graph.add_task(1, a, "recv at 0");
  const int send_a = graph.add_task(1, a, "send at 0");
  const int recv_b = graph.add_task(1, b, "recv at 1");
  const int send_b = graph.add_task(1, b, "send at 1");
  graph.add_predecessor(recv_a, send_b);
  graph.add_predecessor(recv_b, send_a);
  try {
    (void)graph.simulate();
    FAIL();
  } catch (const Error& error) {
    for (const char* label : {"recv at 0", "send at 0", "recv at 1", "send at 1"}) {
      EXPECT_NE(std::string(error.what()).find(label), std::string::npos) << error.what();
    }
  }
}

struct Recorded {
  TaskGraph graph;
  std::vector<std::vector<int>> held;
  std::vector<double> duration;
  std::vector<std::tuple<int, int, double>> edges;  // task, predecessor, lag
  std::vector<Discipline> disciplines;
};

Recorded random_graph(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&random](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  Recorded r;
  const int resources = 1 + below(4);
  for (int i = 0; i < resources; ++i) {
    r.disciplines.push_back(below(2) == 0 ? Discipline::kProgramOrder : Discipline::kFirstReady);
    (void)r.graph.add_resource(i, 0, r.disciplines.back());
  }
  const int tasks = 1 + below(30);
  for (int task = 0; task < tasks; ++task) {
    std::vector<int> held;
    for (int i = 0; i < resources; ++i) {
      if (below(resources) == 0) held.push_back(i);
    }
    r.duration.push_back(below(5));
    (void)r.graph.add_task(r.duration.back(), held);
    r.held.push_back(held);
    for (int e = task > 0 ? below(3) : 0; e > 0; --e) {
      r.edges.emplace_back(task, below(task), below(2) * 0.5);
      r.graph.add_predecessor(task, std::get<1>(r.edges.back()), std::get<2>(r.edges.back()));
    }
  }
  return r;
}

TEST(TaskGraph, RandomGraphsKeepEveryInvariant) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Recorded r = random_graph(seed);
    const SimulatedTasks times = r.graph.simulate();
    EXPECT_EQ(r.graph.simulate().begin, times.begin);
    for (const auto& [task, predecessor, lag] : r.edges) {
      EXPECT_GE(times.begin[static_cast<std::size_t>(task)],
                times.end[static_cast<std::size_t>(predecessor)] + lag);
    }
    for (std::size_t a = 0; a < r.held.size(); ++a) {
      // Each begin is 0 or some task's end (plus half a lag): nothing waits for nobody.
      EXPECT_EQ(times.end[a], times.begin[a] + r.duration[a]);
      bool forced = times.begin[a] == 0;
      for (std::size_t b = 0; b < r.held.size(); ++b) {
        forced = forced || times.begin[a] == times.end[b] || times.begin[a] == times.end[b] + 0.5;
        for (const int resource : r.held[a]) {
          if (b <= a || std::find(r.held[b].begin(), r.held[b].end(), resource) == r.held[b].end())
            continue;
          EXPECT_TRUE(times.end[a] <= times.begin[b] || times.end[b] <= times.begin[a]);
          if (r.disciplines[static_cast<std::size_t>(resource)] == Discipline::kProgramOrder) {
            EXPECT_LE(times.end[a], times.begin[b]);
          }
        }
      }
      EXPECT_TRUE(forced);
    }
    double busy_or_lag = 0;
    for (std::size_t i = 0; i < times.critical_path.size(); ++i) {
      const auto task = static_cast<std::size_t>(times.critical_path[i]);
      const double before =
          i == 0 ? 0 : times.end[static_cast<std::size_t>(times.critical_path[i - 1])];
      const double gap = times.begin[task] - before;
      EXPECT_TRUE(gap == 0 || (i > 0 && gap == 0.5));
      busy_or_lag += gap;
      busy_or_lag += r.duration[task];
    }
    EXPECT_EQ(busy_or_lag, times.makespan);
  }
}

}  // namespace
}  // namespace sinew::sched
