// Schedules that a user wrote: dependences that a generator would never write are run as proved.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "comm/communicator.h"
#include "sched/collective/registry.h"
#include "sched/places.h"
#include "sched/verify.h"
#include "tests/comm/support/collective_case.h"
#include "tests/comm/support/failures.h"

namespace sinew::comm::testing {
namespace {

using sched::Program;
using sched::Schedule;
using sched::Step;

// Each step also waits for some steps that it shares nothing with.
Schedule with_needless_dependences(Schedule schedule, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (Program& program : schedule.programs) {
    std::vector<std::uint32_t> all;
    std::size_t next = 0;
    for (std::uint32_t at = 0; at < program.steps.size(); ++at) {
      Step& step = program.steps[at];
      std::vector<bool> waits(at, false);
      for (int i = 0; i < step.dependences; ++i) waits[program.dependences[next++]] = true;
      // The second part of a joined message waits for steps before both.
      const std::uint32_t before = step.joined != 0 ? 0 : at;
      for (std::uint32_t earlier = 0; earlier < before; ++earlier)
        waits[earlier] = waits[earlier] || random() % 3 == 0;
      step.dependences = 0;
      for (std::uint32_t earlier = 0; earlier < at; ++earlier) {
        if (!waits[earlier]) continue;
        all.push_back(earlier);
        ++step.dependences;
      }
    }
    program.dependences = all;
  }
  return schedule;
}

// No step waits for what another of its waits waits for, however far back: the order of two steps
// that share a place may be told over third ones alone.
Schedule with_fewest_dependences(Schedule schedule) {
  for (Program& program : schedule.programs) {
    std::vector<std::vector<std::uint32_t>> waits;
    std::vector<std::vector<bool>> after;  // [step][earlier]: ordered, directly or over others
    std::size_t next = 0;
    for (Step& step : program.steps) {
      std::vector<std::uint32_t> own(
          program.dependences.begin() + static_cast<std::ptrdiff_t>(next),
          program.dependences.begin() + static_cast<std::ptrdiff_t>(next + step.dependences));
      next += step.dependences;
      std::vector<bool> implied(waits.size(), false);
      for (const std::uint32_t wait : own) {
        for (std::size_t i = 0; i < after[wait].size(); ++i)
          implied[i] = implied[i] || after[wait][i];
      }
      std::erase_if(own, [&](std::uint32_t wait) { return implied[wait]; });
      for (const std::uint32_t wait : own) implied[wait] = true;
      step.dependences = static_cast<std::uint16_t>(own.size());
      waits.push_back(own);
      after.push_back(implied);
    }
    program.dependences.clear();
    for (const auto& own : waits)
      program.dependences.insert(program.dependences.end(), own.begin(), own.end());
  }
  return schedule;
}

// What the ranks' outputs become equals what the row's own schedule makes of the same inputs.
void expect_same_result(const Schedule& written, const sched::Algorithm& row, int world) {
  constexpr std::int64_t kCount = 1000;
  Failures failures;
  Communicator::run_threads(world, {.timeout_s = 20}, [&](Communicator& communicator) {
    const std::size_t most = static_cast<std::size_t>(kCount) * static_cast<std::size_t>(world);
    std::vector<std::int32_t> input(most);
    for (std::size_t i = 0; i < most; ++i)
      input[i] = static_cast<std::int32_t>(i) * 7 + communicator.rank() * 1000003;
    std::vector<std::int32_t> expected(most, -1);
    std::vector<std::int32_t> found(most, -1);
    const Schedule own = sched::generate(row, {.world = world});
    communicator.run_schedule(own, input.data(), expected.data(), kCount, DType::kI32,
                              ReduceOp::kSum);
    communicator.run_schedule(written, input.data(), found.data(), kCount, DType::kI32,
                              ReduceOp::kSum);
    failures.add(expected == found ? "" : std::string(row.name) + ": another result");
  });
}

TEST(OwnSchedule, DependencesOfStepsThatShareNothingAndOfStepsOrderedOverOthersRunAsProved) {
  int needless = 0;
  for (const int world : {2, 3}) {
    for (const sched::Algorithm& row : sched::algorithms()) {
      if (!row.refuse({.world = world}).empty()) continue;
      const Schedule own = sched::generate(row, {.world = world});
      expect_same_result(with_fewest_dependences(own), row, world);
      const Schedule more = with_needless_dependences(own, 7);
      if (!sched::verify(more).proved()) continue;  // some orders deadlock, and are refused
      ++needless;
      expect_same_result(more, row, world);
    }
  }
  EXPECT_GT(needless, 20);
}

// Laws of the rewriting itself: still proved, and nothing waits for what it shares no place with.
TEST(OwnSchedule, DirectDependencesAreProvedAndTheSameWhateverOrdersWereWritten) {
  for (const int world : {2, 3, 5, 8}) {
    for (const sched::Algorithm& row : sched::algorithms()) {
      if (!row.refuse({.world = world}).empty()) continue;
      const Schedule own = sched::generate(row, {.world = world});
      const Schedule direct = sched::with_direct_dependences(own);
      EXPECT_TRUE(sched::verify(direct).proved()) << row.name << " " << world;
      EXPECT_EQ(sched::with_direct_dependences(with_fewest_dependences(own)), direct) << row.name;
      EXPECT_EQ(sched::with_direct_dependences(with_needless_dependences(own, 3)), direct)
          << row.name;
    }
  }
}

}  // namespace
}  // namespace sinew::comm::testing
