// simulate against times worked out by hand, and laws of its model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "sched/base/error.h"
#include "sched/collective/registry.h"
#include "sched/simulate.h"

namespace sinew::sched {
namespace {

constexpr double kLatency = 1e-6;
constexpr double kCost = 1e-9;
constexpr double kReduce = 0.25e-9;

double seconds_of(const Schedule& schedule, const Topology& topology, std::int64_t bytes,
                  int segments = 0, int credits = -1) {
  SimulateOptions options;
  options.bytes = bytes;
  options.segments = segments;
  options.credits = credits;
  return simulate(schedule, topology, options).seconds;
}

Schedule row(Collective op, std::string_view name, int world) {
  return generate(find_algorithm(op, name), {.world = world});
}

// A chain 0 -> 1 -> ... of one chunk.
Schedule chain(int world) {
  Builder b({.op = Collective::kBroadcast, .world = world});
  for (int rank = 0; rank + 1 < world; ++rank) b.copy({.chunk = 0, .from = rank, .to = rank + 1});
  return b.finish("chain");
}

TEST(Simulate, APipelinedChainTakesWorldMinusTwoPlusSegmentsSteps) {
  const Topology topology = homogeneous(6, {kLatency, kCost}, 0);
  for (const int segments : {1, 2, 5, 40}) {
    const double step = kLatency + 1000.0 * kCost;
    EXPECT_NEAR(seconds_of(chain(6), topology, 1000 * segments, segments),
                (6 - 2 + segments) * step, 1e-12)
        << segments;
  }
}

TEST(Simulate, AReductionTakesTimeOnTheRankThatReduces) {
  const Topology topology = homogeneous(2, {kLatency, kCost}, kReduce);
  EXPECT_NEAR(seconds_of(row(Collective::kReduce, "binomial", 2), topology, 1000),
              kLatency + 1000 * kCost + 1000 * kReduce, 1e-15);
}

TEST(Simulate, OnePortReceivesOneMessageAtATimeAndAnyNumberAllAtOnce) {
  Topology topology = homogeneous(5, {kLatency, kCost}, 0);
  const Schedule schedule = row(Collective::kReduce, "direct", 5);
  const double message = kLatency + 1000 * kCost;
  for (const auto& [ports, rounds] : {std::pair{1, 4}, {2, 2}, {3, 2}, {4, 1}, {0, 1}}) {
    topology.ports = ports;
    EXPECT_NEAR(seconds_of(schedule, topology, 1000), rounds * message, 1e-12) << ports;
  }
}

TEST(Simulate, SharedLinksPassOneMessageAtATime) {
  // 0 and 1 send to 2 and 3 over one wire.
  Builder b({.op = Collective::kAllGather, .world = 4});
  b.copy({.chunk = 0, .from = 0, .to = 2});
  b.copy({.chunk = 1, .from = 1, .to = 3});
  const Schedule schedule = b.finish("two");
  Topology topology = homogeneous(4, {kLatency, kCost}, 0);
  const double message = kLatency + 1000 * kCost;
  EXPECT_NEAR(seconds_of(schedule, topology, 4000), message, 1e-15);
  topology.shares.push_back({"wire", {{{0, 1}}}, {{{2, 3}}}});
  EXPECT_NEAR(seconds_of(schedule, topology, 4000), 2 * message, 1e-15);
}

TEST(Simulate, LocalCopiesCostWhatTheTopologySays) {
  Topology topology = homogeneous(1, {}, 0);
  topology.copy_s_per_byte = kCost;
  EXPECT_NEAR(seconds_of(row(Collective::kAllReduce, "ring", 1), topology, 1000), 1000 * kCost,
              1e-15);
}

// Three messages of one lane into slots that the receiver has to give free one by one.
TEST(Simulate, CreditsHoldSendsBackUntilTheReceiverIsReady) {
  Builder b({.op = Collective::kReduce, .world = 3, .root = 2, .chunks_per_block = 3});
  for (int chunk = 0; chunk < 3; ++chunk) b.reduce({.chunk = chunk, .from = 0, .to = 1});
  for (int chunk = 0; chunk < 3; ++chunk) b.reduce({.chunk = chunk, .from = 1, .to = 2});
  const Schedule schedule = b.finish("relay");
  const Topology topology = homogeneous(3, {kLatency, kCost}, 4 * kCost);
  const double free = seconds_of(schedule, topology, 3000);
  double last = seconds_of(schedule, topology, 3000, 0, 1);
  EXPECT_GT(last, free);
  for (int credits = 2; credits <= 3; ++credits) {
    const double now = seconds_of(schedule, topology, 3000, 0, credits);
    EXPECT_LE(now, last + 1e-15) << credits;
    last = now;
  }
  EXPECT_NEAR(last, free, 1e-15);
}

TEST(Simulate, ARendezvousWithoutBuffersStopsWhereVerifySaysItNeedsACredit) {
  const Schedule schedule = row(Collective::kAllReduce, "recursive_doubling", 4);
  const Topology topology = homogeneous(4, {kLatency, kCost}, 0);
  EXPECT_THROW((void)seconds_of(schedule, topology, 1000, 0, 0), Error);
  EXPECT_GT(seconds_of(schedule, topology, 1000, 0, 1), 0);
}

// Where nothing waited for what something else held, no other way of serving is faster, and none is
// tried: of a ring with equal chunks for one.
TEST(Simulate, TheFastestIsTheLeastOfAllWaysOfServing) {
  int contended = 0;
  int free = 0;
  for (const Algorithm& algorithm : algorithms()) {
    for (const int world : {2, 3, 5, 8}) {
      if (!algorithm.refuse({.world = world}).empty()) continue;
      const Schedule schedule = generate(algorithm, {.world = world});
      Topology uneven = two_level({.world = world,
                                   .ranks_per_host = 3,
                                   .inside = {kLatency, kCost},
                                   .between = {3 * kLatency, 2 * kCost},
                                   .reduce_s_per_byte = kReduce});
      Topology two_ports = homogeneous(world, {kLatency, kCost}, kReduce);
      two_ports.ports = 2;
      for (const Topology& topology :
           {homogeneous(world, {kLatency, kCost}, kReduce), uneven, two_ports}) {
        for (const std::int64_t bytes : {8, 840 * 64}) {
          SimulateOptions options;
          options.bytes = bytes;
          const Simulation found = simulate_fastest(schedule, topology, options);
          double least = simulate(schedule, topology, options).seconds;
          for (const auto& [credits, order] :
               {std::pair{0, PortOrder::kReady}, std::pair{-1, PortOrder::kProgram}}) {
            SimulateOptions other = options;
            other.credits = credits;
            other.order = order;
            try {
              least = std::min(least, simulate(schedule, topology, other).seconds);
            } catch (const Error&) {
              // It cannot be served so.
            }
          }
          EXPECT_EQ(found.seconds, least)
              << algorithm.name << " " << world << " ranks, " << bytes << " bytes";
          ++(found.contended ? contended : free);
        }
      }
    }
  }
  EXPECT_GT(contended, 0);
  EXPECT_GT(free, 0);
  SimulateOptions options;
  options.bytes = 8000;
  EXPECT_FALSE(simulate(row(Collective::kAllReduce, "ring", 8),
                        homogeneous(8, {kLatency, kCost}, kReduce), options)
                   .contended);
}

TEST(Simulate, TheTopologyMustHaveTheSchedulesRanks) {
  EXPECT_THROW((void)seconds_of(chain(4), homogeneous(5, {}, 0), 1), UsageError);
}

TEST(Simulate, TheTimelineCoversTheTimeAndIsTheSameEveryRun) {
  const Schedule schedule = row(Collective::kAllReduce, "ring", 4);
  const Topology topology = homogeneous(4, {kLatency, kCost}, kReduce);
  SimulateOptions options;
  options.bytes = 4000;
  const Simulation first = simulate(schedule, topology, options);
  EXPECT_EQ(first.timeline.begin_s(), 0);
  EXPECT_EQ(first.timeline.end_s(), first.seconds);
  // 6 rounds of 4 messages seen from both ends, 3 of them with 4 reductions.
  EXPECT_EQ(first.timeline.spans.size(), 6U * 4 * 2 + 3 * 4);
  EXPECT_EQ(draw_text(first.timeline), draw_text(simulate(schedule, topology, options).timeline));
  options.timeline = false;
  EXPECT_TRUE(simulate(schedule, topology, options).timeline.spans.empty());
  EXPECT_EQ(simulate(schedule, topology, options).seconds, first.seconds);
}

TEST(Simulate, ATwoLevelMachineFavoursWhatStaysInside) {
  const Topology topology = two_level({.world = 16,
                                       .ranks_per_host = 4,
                                       .inside = {1e-7, 1e-11},
                                       .between = {5e-6, 1e-9},
                                       .reduce_s_per_byte = 0});
  // The ring crosses each host's way out once a round, recursive halving with all ranks at once.
  const std::int64_t bytes = 16 << 20;
  EXPECT_LT(seconds_of(row(Collective::kAllReduce, "ring", 16), topology, bytes),
            seconds_of(row(Collective::kAllReduce, "halving_doubling", 16), topology, bytes));
}

}  // namespace
}  // namespace sinew::sched
