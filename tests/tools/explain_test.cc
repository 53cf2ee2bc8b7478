// explain draws every row of the registries, and what it draws is right: rounds as the closed form
// counts them and all contributions at the end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sched/base/partition.h"
#include "sched/collective/registry.h"
#include "sched/pipeline/schedule.h"
#include "tests/tools/process.h"
#include "tools/rounds.h"

namespace sinew::test {
namespace {

TEST(Rounds, EndWithTheContractsOutputForEveryAlgorithmAndWorldsTo9) {
  for (const sched::Algorithm& row : sched::algorithms()) {
    for (int world = 1; world <= 9; ++world) {
      const sched::Params params = {.world = world, .root = world / 2};
      if (!row.refuse(params).empty()) continue;
      const sched::Schedule schedule = sched::generate(row, params);
      const sched::Contract& contract = schedule.contract;
      const std::vector<tools::Round> rounds = tools::rounds_of(schedule);
      for (int rank = 0; rank < world; ++rank) {
        for (int chunk = 0; chunk < contract.chunks(); ++chunk) {
          if (!contract.has_output(rank, chunk) || row.op == sched::Collective::kBarrier) continue;
          const std::uint64_t held =
              rounds.back().held[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
          const std::uint64_t all = (std::uint64_t{1} << world) - 1;
          EXPECT_TRUE(contract.reduces() ? held == all : held != 0)
              << sched::name_of(row.op) << " " << row.name << " world " << world << " rank "
              << rank;
        }
      }
    }
  }
}

// Off powers of two, ranks that are folded in drift apart from the others, and a rank's last
// message may fall into a round of its own that the busiest rank does not see.
TEST(Rounds, AreAsManyAsTheClosedFormCountsAtPowersOfTwoAndNoFewerElsewhere) {
  for (const sched::Algorithm& row : sched::algorithms()) {
    for (int world = 1; world <= 16; ++world) {
      const sched::Params params = {.world = world};
      if (!row.refuse(params).empty()) continue;
      const double drawn =
          static_cast<double>(tools::rounds_of(sched::generate(row, params)).size()) - 1;
      const std::string name =
          fmt::format("{} {} world {}", sched::name_of(row.op), row.name, world);
      EXPECT_GE(drawn, row.cost(params).rounds) << name;
      EXPECT_TRUE(!is_power_of_two(world) || drawn == row.cost(params).rounds)
          << name << " " << drawn;
    }
  }
}

TEST(Explain, SpeaksAboutEveryRow) {
  const Outcome outcome = run_sinew("explain --op all --algo all");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const sched::Algorithm& row : sched::algorithms()) {
    EXPECT_NE(
        outcome.out.find(std::string(sched::name_of(row.op)) + " by " + std::string(row.name)),
        std::string::npos);
  }
}

TEST(Explain, DrawsEveryPipelineSchedule) {
  for (const sched::PipeAlgorithm& row : sched::pipe_algorithms()) {
    int chunks = 1;
    while (chunks < 4 && !row.refuse({4, chunks, 8}).empty()) ++chunks;
    const std::string name(row.name);
    const Outcome outcome = run_sinew(
        fmt::format("explain --op pipeline --algo {} --world 4 --chunks {}", name, chunks));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("pipeline schedule " + name), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("rank 3"), std::string::npos) << outcome.out;
  }
}

}  // namespace
}  // namespace sinew::test
