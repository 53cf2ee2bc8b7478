// What an algorithm with levels makes of ranks that lie on hosts.
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/plan.h"
#include "sched/collective/registry.h"

namespace sinew::comm::testing {
namespace {

TEST(Levels, ARankSumsItsHostInOnePassAndLendsAllThatItSends) {
  constexpr int kWorld = 8;
  constexpr int kGroup = 4;
  const sched::Schedule schedule =
      sched::generate(sched::find_algorithm(sched::Collective::kAllReduce, "hierarchical"),
                      {.world = kWorld, .group = kGroup});
  for (int rank = 0; rank < kWorld; ++rank) {
    const Plan plan = compile_whole(schedule, rank, true);
    const auto host = [&](int peer) { return peer / kGroup == rank / kGroup; };
    int passes = 0;
    for (const PlanStep& step : plan.steps) {
      if (step.verb == PlanVerb::kSend) {
        EXPECT_TRUE(step.exposable) << rank;
        continue;
      }
      // The others' inputs and its own.
      if (step.verb == PlanVerb::kReduceMany) {
        ++passes;
        EXPECT_EQ(step.operands, static_cast<std::uint32_t>(kGroup)) << rank;
      }
      // What comes one by one comes from other hosts.
      if (step.verb == PlanVerb::kReduce) {
        EXPECT_FALSE(host(step.peer)) << rank;
      }
    }
    EXPECT_EQ(passes, 1) << rank;
  }
}

}  // namespace
}  // namespace sinew::comm::testing
