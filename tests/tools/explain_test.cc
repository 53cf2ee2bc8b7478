// explain draws every row of the registries (what is drawn: tests/sched/rounds_test.cc).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sched/collective/registry.h"
#include "sched/pipeline/schedule.h"
#include "tests/tools/process.h"

namespace sinew::test {
namespace {

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
    const std::string name(row.name);
    const Outcome outcome =
        run_sinew(fmt::format("explain --op pipeline --algo {} --world 4", name));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("pipeline schedule " + name), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("rank 3"), std::string::npos) << outcome.out;
  }
}

// What explain writes is what the other subcommands read: a user's way to a schedule of their own.
TEST(Explain, WritesTextThatVerifyProvesAndSimulateTimes) {
  const TestFolder folder;
  const std::string path = folder.path("schedule");
  std::vector<std::pair<std::string, std::string>> rows = {{"pipeline", "zb-h1"}};
  for (const sched::Algorithm& row : sched::algorithms()) {
    if (row.refuse({.world = 4}).empty())
      rows.emplace_back(sched::name_of(row.op), std::string(row.name));
  }
  // Every eleventh row, and the pipeline: a process each.
  for (std::size_t i = 0; i < rows.size(); i += 11) {
    const std::string what = fmt::format("--op {} --algo {}", rows[i].first, rows[i].second);
    const Outcome written = run_sinew(fmt::format("explain {} --text {}", what, path));
    ASSERT_EQ(written.exit_code, 0) << what << written.err;
    for (const char* command : {"verify", "simulate"}) {
      const Outcome read = run_sinew(fmt::format("{} --file {}", command, path));
      EXPECT_EQ(read.exit_code, 0) << what << read.err;
    }
  }
}

}  // namespace
}  // namespace sinew::test
