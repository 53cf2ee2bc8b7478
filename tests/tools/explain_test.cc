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

}  // namespace
}  // namespace sinew::test
