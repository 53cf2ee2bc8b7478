// Laws of every collective, on threads.
#include <gtest/gtest.h>

#include <string>

#include "comm/communicator.h"
#include "sched/collective/registry.h"
#include "tests/comm/support/collective_case.h"
#include "tests/comm/support/failures.h"

namespace sinew::comm::testing {
namespace {

TEST(Collective, EveryAlgorithmGivesTheExactResultOnWorlds1To9) {
  Failures failures;
  for (int world = 1; world <= 9; ++world) {
    Communicator::run_threads(world, {}, [&](Communicator& communicator) {
      for (const sched::Algorithm& row : sched::algorithms()) {
        if (!row.refuse({.world = world}).empty()) continue;
        for (const std::int64_t count : {0, 1, world + 1, 1000}) {
          failures.add(run_case(communicator, {.op = row.op,
                                               .algorithm = std::string(row.name),
                                               .count = count,
                                               .root = world - 1}));
        }
      }
    });
  }
}

TEST(Collective, SampledCallsGiveTheExactResult) {
  RecordProperty("seed", std::to_string(test_seed()));
  Failures failures;
  for (const int world : {1, 2, 3, 4, 5, 7, 8}) {
    Communicator::run_threads(world, {}, [&](Communicator& communicator) {
      for (std::uint64_t i = 0; i < 150; ++i) {
        failures.add(run_case(
            communicator, draw_case(test_seed() + static_cast<std::uint64_t>(world), i, world)));
      }
    });
  }
}

}  // namespace
}  // namespace sinew::comm::testing
