// Algorithms inside algorithms, and algorithms on the machines they are made for.
#include "sched/collective/hierarchical.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "sched/base/error.h"
#include "sched/simulate.h"
#include "sched/topology.h"
#include "sched/verify.h"
#include "tests/sched/interpreter.h"

namespace sinew::sched {
namespace {

std::vector<const Algorithm*> rows_of(Collective op) {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& row : algorithms()) {
    if (row.op == op) rows.push_back(&row);
  }
  return rows;
}

// Every inner reduce-scatter and every outer all-reduce, the inner all-gathers in turn.
template <typename Visit>
void for_each_composition(int world, int group, Visit visit) {
  const std::vector<const Algorithm*> gathers = rows_of(Collective::kAllGather);
  std::size_t turn = 0;
  for (const Algorithm* scatter : rows_of(Collective::kReduceScatter)) {
    for (const Algorithm* between : rows_of(Collective::kAllReduce)) {
      const Levels levels = {scatter, between, gathers[turn++ % gathers.size()], group};
      if (!refuse_levels(world, levels).empty()) continue;
      visit(levels, fmt::format("{} of {} in groups of {}: {}, {}, {}", "all_reduce", world, group,
                                scatter->name, between->name, levels.all_gather->name));
    }
  }
}

constexpr std::pair<int, int> kWorldAndGroup[] = {{4, 2},  {6, 2},  {6, 3},  {8, 4},  {9, 3},
                                                  {12, 4}, {15, 5}, {16, 4}, {20, 2}, {24, 8}};

TEST(Hierarchical, AnyInnerWithAnyOuterIsProvedAtTheSumOfTheirCosts) {
  int compositions = 0;
  for (const auto& [world, group] : kWorldAndGroup) {
    for_each_composition(world, group, [&](const Levels& levels, const std::string& name) {
      ++compositions;
      const Verdict verdict = verify(hierarchical_all_reduce(world, levels));
      ASSERT_TRUE(verdict.proved()) << name << ": " << verdict.failure << "\n" << verdict.drawing;
      constexpr double kRounding = 1e-12;
      const Cost closed = levels_cost(world, levels);
      EXPECT_LE(verdict.facts.cost.rounds, closed.rounds + kRounding) << name;
      EXPECT_LE(verdict.facts.cost.bytes, closed.bytes + kRounding) << name;
      EXPECT_LE(verdict.facts.cost.reduced, closed.reduced + kRounding) << name;
    });
  }
  EXPECT_GE(compositions, 400);
}

TEST(Hierarchical, GivesTheNumbersInAndOutOfPlace) {
  for (const auto& [world, group] : {std::pair{6, 3}, {8, 2}, {12, 4}}) {
    for_each_composition(world, group, [&](const Levels& levels, const std::string& name) {
      const Schedule schedule = hierarchical_all_reduce(world, levels);
      for (const Placement placement : {Placement::kInPlace, Placement::kOutOfPlace}) {
        Interpreter interpreter(schedule, placement, 1);
        ASSERT_TRUE(interpreter.run()) << name;
        ASSERT_TRUE(interpreter.right()) << name;
      }
    });
  }
}

TEST(Hierarchical, LevelsThatDoNotFitAreRefusedInOneLine) {
  const Levels halving = {&find_algorithm(Collective::kReduceScatter, "halving"),
                          &find_algorithm(Collective::kAllReduce, "ring"),
                          &find_algorithm(Collective::kAllGather, "ring"), 3};
  EXPECT_NE(refuse_levels(6, halving).find("power of two"), std::string::npos);
  EXPECT_NE(refuse_levels(7, halving).find("divide world 7"), std::string::npos);
  EXPECT_THROW((void)hierarchical_all_reduce(6, halving), UsageError);
}

double seconds_on(const Topology& topology, const Schedule& schedule, std::int64_t bytes) {
  SimulateOptions options;
  options.bytes = bytes;
  options.timeline = false;
  return simulate_fastest(schedule, topology, options).seconds;
}

TEST(Hierarchical, BeatsFlatAlgorithmsWhereHostsShareOneWayOut) {
  const Topology hosts = two_level({.world = 32,
                                    .ranks_per_host = 8,
                                    .inside = {3e-7, 2e-11},
                                    .between = {3e-6, 8e-11},
                                    .reduce_s_per_byte = 1e-11});
  const auto row = [](Collective op, const char* name) { return &find_algorithm(op, name); };
  const Levels levels = {row(Collective::kReduceScatter, "ring"),
                         row(Collective::kAllReduce, "halving_doubling"),
                         row(Collective::kAllGather, "ring"), 8};
  const std::int64_t bytes = std::int64_t{1} << 20;
  const double composed = seconds_on(hosts, hierarchical_all_reduce(32, levels), bytes);
  for (const char* flat : {"ring", "recursive_doubling", "halving_doubling", "circulant"}) {
    const Schedule schedule = generate(*row(Collective::kAllReduce, flat), {.world = 32});
    EXPECT_LT(composed, seconds_on(hosts, schedule, bytes)) << flat;
  }
}

TEST(Hierarchical, TheRowTakesTheGroupsThatItIsGiven) {
  const Algorithm& row = find_algorithm(Collective::kAllReduce, "hierarchical");
  for (const int group : {1, 2, 3, 4, 6, 12}) {
    const Params params = {.world = 12, .group = group};
    const Schedule schedule = generate(row, params);
    EXPECT_TRUE(verify(schedule).proved()) << group;
    const Levels levels = {&find_algorithm(Collective::kReduceScatter, "direct"),
                           &find_algorithm(Collective::kAllReduce, "circulant"),
                           &find_algorithm(Collective::kAllGather, "direct"), group};
    EXPECT_EQ(schedule, hierarchical_all_reduce(12, levels)) << group;
  }
  EXPECT_NE(row.refuse({.world = 12, .group = 5}), "");
}

TEST(BidirectionalRing, TakesHalfTheTimeOfARingWithAPortPerDirection) {
  for (const int world : {5, 8, 17}) {
    Topology machine = homogeneous(world, {1e-6, 1e-9}, 0);
    machine.ports = 2;
    const auto bytes = std::int64_t{1000} * world;
    for (const Collective op :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
      const double ring =
          seconds_on(machine, generate(find_algorithm(op, "ring"), {.world = world}), bytes);
      const double both = seconds_on(
          machine, generate(find_algorithm(op, "bidirectional_ring"), {.world = world}), bytes);
      EXPECT_NEAR(both / ring, (world / 2) / (world - 1.0), 0.02) << name_of(op) << " " << world;
    }
  }
}

}  // namespace
}  // namespace sinew::sched
