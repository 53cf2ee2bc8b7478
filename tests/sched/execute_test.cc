// Every row of the table run on numbers: an independent check beside the symbolic proof.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sched/collective/registry.h"
#include "tests/sched/interpreter.h"

namespace sinew::sched {
namespace {

TEST(Execute, EveryRowGivesTheContractsNumbersInAndOutOfPlaceInAnyOrderForWorlds1To9And16And17) {
  for (const Algorithm& row : algorithms()) {
    for (const int world : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17}) {
      const Params params = {.world = world, .root = (world * 7 + 3) % world};
      if (!row.refuse(params).empty()) continue;
      const Schedule schedule = generate(row, params);
      for (const Placement placement : {Placement::kInPlace, Placement::kOutOfPlace}) {
        const auto seed = static_cast<std::uint32_t>(world);
        Interpreter interpreter(schedule, placement, seed);
        const std::string name =
            fmt::format("{}/{} world {} seed {}", name_of(row.op), row.name, world, seed);
        ASSERT_TRUE(interpreter.run()) << name;
        ASSERT_TRUE(interpreter.right()) << name;
      }
    }
  }
}

TEST(Generate, KeepingOneRankGivesThatRanksProgram) {
  for (const Algorithm& row : algorithms()) {
    for (int world : {1, 2, 5, 8}) {
      const Params params = {.world = world, .root = world / 2};
      if (!row.refuse(params).empty()) continue;
      const Schedule all = generate(row, params);
      for (int rank = 0; rank < world; ++rank) {
        const Schedule one = generate(row, params, rank);
        EXPECT_EQ(one.programs[static_cast<std::size_t>(rank)],
                  all.programs[static_cast<std::size_t>(rank)]);
      }
    }
  }
}

}  // namespace
}  // namespace sinew::sched
