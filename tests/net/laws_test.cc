// Over every wire of this machine, ranks compute and exchange the same as in one memory.
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "sched/base/dtype.h"
#include "sched/collective/registry.h"
#include "tests/comm/support/collective_case.h"
#include "tests/comm/support/exchanges.h"
#include "tests/net/support/wires.h"

namespace sinew::comm::testing {
namespace {

void expect_all_silent(const std::string& wire, int world,
                       const std::function<std::string(Communicator&)>& body) {
  const auto outcomes = run_over(wire, world, 60, body);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].status, 0) << wire << ", rank " << rank << " of " << world;
    EXPECT_EQ(outcomes[rank].text, "") << wire << ", rank " << rank << " of " << world;
  }
}

TEST(NetLaws, EveryOperationIsExactInEveryTypeOnTwoToFourRanks) {
  for (const std::string& wire : wires_here()) {
    for (const int world : {2, 3, 4}) {
      expect_all_silent(wire, world, [world](Communicator& c) -> std::string {
        for (const sched::Collective op : operations()) {
          for (const DTypeInfo& type : kDTypes) {
            const std::string wrong = run_case(c, {.op = op,
                                                   .algorithm = "auto",
                                                   .dtype = type.dtype,
                                                   .count = 1000,
                                                   .root = world - 1});
            if (!wrong.empty()) return wrong;
          }
        }
        return {};
      });
    }
  }
}

TEST(NetLaws, EveryAlgorithmIsExactOnThreeAndFourRanks) {
  for (const std::string& wire : wires_here()) {
    for (const int world : {3, 4}) {
      expect_all_silent(wire, world, [world](Communicator& c) -> std::string {
        for (const sched::Algorithm& row : sched::algorithms()) {
          if (!row.refuse({.world = world}).empty()) continue;
          for (const std::int64_t count : {0, 5, 30'000}) {
            const std::string wrong =
                run_case(c, {.op = row.op, .algorithm = std::string(row.name), .count = count});
            if (!wrong.empty()) return wrong;
          }
        }
        return {};
      });
    }
  }
}

TEST(NetLaws, LargeBuffersAreExact) {
  for (const std::string& wire : wires_here()) {
    expect_all_silent(wire, 2, [](Communicator& c) {
      return run_case(c,
                      {.op = sched::Collective::kAllReduce, .algorithm = "ring", .count = 500'003});
    });
  }
}

TEST(NetLaws, MessagesSplitsAndCallsInFlightKeepApart) {
  for (const std::string& wire : wires_here()) {
    for (const int world : {2, 3}) {
      expect_all_silent(wire, world, [](Communicator& c) -> std::string {
        for (const auto check : {check_messages, check_split, check_several_in_flight}) {
          const std::string wrong = check(c);
          if (!wrong.empty()) return wrong;
        }
        return {};
      });
    }
  }
}

}  // namespace
}  // namespace sinew::comm::testing
