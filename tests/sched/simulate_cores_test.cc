// Processors that ranks share: times worked out by hand, and laws over every algorithm.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sched/collective/registry.h"
#include "sched/simulate.h"

namespace sinew::sched {
namespace {

constexpr double kLatency = 1e-6;
constexpr double kCost = 1e-9;
constexpr double kReduce = 0.25e-9;
constexpr Link kWork{2e-6, 0.5e-9};

double seconds_of(const Schedule& schedule, const Topology& topology, std::int64_t bytes,
                  int segments = 0) {
  SimulateOptions options;
  options.bytes = bytes;
  options.segments = segments;
  return simulate(schedule, topology, options).seconds;
}

RankSet all_of(int world) { return {{{0, world - 1}}}; }

Topology with_work(int world, Link work) {
  Topology topology = homogeneous(world, {kLatency, kCost}, kReduce);
  topology.works.push_back({all_of(world), all_of(world), true, work});
  return topology;
}

// For how long processors are busy, all together and that of the busiest rank; and all links.
struct Busy {
  double all_s = 0;
  double most_s = 0;
  double links_s = 0;
};

Busy busy(const Schedule& schedule, const Topology& topology, std::int64_t bytes) {
  SimulateOptions options;
  options.bytes = bytes;
  const Simulation simulation = simulate(schedule, topology, options);
  std::vector<double> ranks(static_cast<std::size_t>(topology.world));
  Busy busy;
  for (const Transfer& transfer : simulation.transfers)
    busy.links_s += transfer.end_s - transfer.begin_s;
  for (const Span& span : simulation.timeline.spans) {
    if (span.lane != 2) continue;
    busy.all_s += span.end_s - span.begin_s;
    double& rank = ranks[static_cast<std::size_t>(span.row)];
    rank += span.end_s - span.begin_s;
    busy.most_s = std::max(busy.most_s, rank);
  }
  return busy;
}

template <typename Body>
void for_each_algorithm(int world, Body&& body) {
  for (const Algorithm& row : algorithms()) {
    if (row.refuse({.world = world}).empty()) body(generate(row, {.world = world}));
  }
}

TEST(SimulateCores, AMessageTakesTheWorkOfBothItsEndsBeforeAndAfterTheLink) {
  Builder b({.op = Collective::kBroadcast, .world = 2});
  b.copy({.chunk = 0, .from = 0, .to = 1});
  const Schedule schedule = b.finish("one");
  const double end = kWork.latency_s + 1000 * kWork.cost_s_per_byte;
  EXPECT_NEAR(seconds_of(schedule, with_work(2, kWork), 1000), kLatency + 1000 * kCost + 2 * end,
              1e-15);
}

// All the same one message: what it brought is reduced by the receiver, at the work's price too.
TEST(SimulateCores, ReducingWhatAMessageBroughtTakesWhatTheMachineAndItsWorkSay) {
  Builder b({.op = Collective::kReduce, .world = 2});
  b.reduce({.chunk = 0, .from = 1, .to = 0});
  const Schedule schedule = b.finish("one");
  Topology topology = with_work(2, kWork);
  const double before = seconds_of(schedule, topology, 1000);
  topology.works[0].reduce_s_per_byte = 0.75e-9;
  EXPECT_NEAR(seconds_of(schedule, topology, 1000), before + 1000 * 0.75e-9, 1e-15);
  topology.works[0] = {{{{0, 0}}}, {{{1, 1}}}, false, kWork, 0.75e-9};
  EXPECT_LT(seconds_of(schedule, topology, 1000), before) << "of the other direction";
}

// A ring's all_reduce on two processors that are all busy, its link and messages free: every byte
// has two ends, and half of the messages are reduced, at the price of the pair that they cross.
TEST(SimulateCores, ARingOverTwoHostsTakesTheWorkOfItsBytesDividedByTheProcessors) {
  constexpr double kInside = 0.5e-9;
  constexpr double kBetween = 1e-9;
  constexpr double kBetweenReduce = 0.25e-9;
  for (const int ranks : {2, 4, 8}) {
    const int world = 2 * ranks;
    const RankSet first{{{0, ranks - 1}}};
    const RankSet second{{{ranks, world - 1}}};
    Topology topology = homogeneous(world, {}, 0);
    topology.works.push_back({all_of(world), all_of(world), true, {0, kInside}, 0});
    topology.works.push_back({first, second, true, {0, kBetween}, kBetweenReduce});
    topology.cores.push_back({"machine", all_of(world), 2});
    const std::int64_t bytes = 64000 * world;
    const double chunk = 64000;
    const double rounds = 2.0 * (world - 1);
    const double work = rounds * chunk * (2 * kInside * (world - 2) + 2 * kBetween * 2) +
                        rounds / 2 * chunk * 2 * kBetweenReduce;
    const double seconds =
        seconds_of(generate(find_algorithm(Collective::kAllReduce, "ring"), {.world = world}),
                   topology, bytes, 64);
    EXPECT_GE(seconds * (1 + 1e-9), work / 2) << world << " ranks";
    EXPECT_LE(seconds, work / 2 * 1.05) << world << " ranks";
  }
}

// Each of two ranks sends and receives: a processor each does two ends of a message, a common one
// does four; the link is free.
TEST(SimulateCores, RanksThatShareAProcessorTakeTurns) {
  Builder b({.op = Collective::kAllGather, .world = 2});
  b.copy({.chunk = 0, .from = 0, .to = 1});
  b.copy({.chunk = 1, .from = 1, .to = 0});
  const Schedule schedule = b.finish("exchange");
  Topology topology = with_work(2, {1e-6, 0});
  topology.links[0].link = {0, 0};
  EXPECT_NEAR(seconds_of(schedule, topology, 2), 2e-6, 1e-15);
  topology.cores.push_back({"both", all_of(2), 2});
  EXPECT_NEAR(seconds_of(schedule, topology, 2), 2e-6, 1e-15);
  topology.cores.push_back({"both", all_of(2), 1});
  EXPECT_NEAR(seconds_of(schedule, topology, 2), 4e-6, 1e-15);
}

TEST(SimulateCores, WithoutWorkAndWithAProcessorPerRankTimesAreThoseWithoutEither) {
  for (const int world : {1, 2, 3, 4, 8}) {
    for_each_algorithm(world, [&](const Schedule& schedule) {
      Topology topology = homogeneous(world, {kLatency, kCost}, kReduce);
      const double plain = seconds_of(schedule, topology, 8000);
      topology.works.push_back({all_of(world), all_of(world), true, {}});
      topology.cores.push_back({"all", all_of(world), world});
      EXPECT_NEAR(seconds_of(schedule, topology, 8000), plain, plain * 1e-9)
          << name_of(schedule.contract.op) << " " << schedule.name << ", " << world << " ranks";
    });
  }
}

// Something is always under way, and no processor does two things at once.
TEST(SimulateCores, TimeLiesBetweenTheWorkPerProcessorAndAllThatIsDoneInARow) {
  for (const int world : {2, 4, 8}) {
    for_each_algorithm(world, [&](const Schedule& schedule) {
      const std::string what = std::string(name_of(schedule.contract.op)) + " " + schedule.name;
      for (const int cores : {1, 2, world}) {
        Topology topology = with_work(world, kWork);
        topology.cores.push_back({"all", all_of(world), cores});
        const double seconds = seconds_of(schedule, topology, 8000);
        const Busy done = busy(schedule, topology, 8000);
        EXPECT_GE(seconds * (1 + 1e-9), done.all_s / cores) << what << ", " << cores << " cores";
        EXPECT_GE(seconds * (1 + 1e-9), done.most_s) << what << ", " << cores << " cores";
        EXPECT_LE(seconds, (done.all_s + done.links_s) * (1 + 1e-9))
            << what << ", " << cores << " cores";
      }
    });
  }
}

TEST(SimulateCores, MoreWorkNeverTakesLessTimeInARing) {
  for (const int cores : {1, 2, 3, 6}) {
    double last = 0;
    for (const double work : {0.0, 0.1, 0.5, 1.0, 2.0, 8.0}) {
      Topology topology = with_work(6, {work * kWork.latency_s, work * kWork.cost_s_per_byte});
      topology.cores.push_back({"all", all_of(6), cores});
      const double seconds = seconds_of(
          generate(find_algorithm(Collective::kAllReduce, "ring"), {.world = 6}), topology, 60000);
      EXPECT_GE(seconds, last) << cores << " cores, work " << work;
      last = seconds;
    }
  }
}

}  // namespace
}  // namespace sinew::sched
