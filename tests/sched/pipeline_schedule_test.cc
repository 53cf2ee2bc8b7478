// Laws of every row of the table of pipeline schedules: proved, and counted equal to its closed
// forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sched/base/error.h"
#include "sched/pipeline/schedule.h"
#include "sched/pipeline/simulate.h"
#include "sched/pipeline/verify.h"

namespace sinew::sched {
namespace {

// Calls `law` with every row and all its legal parameters in the range.
struct Range {
  int ranks_max;
  int chunks_max;
  int microbatches_max;
};

template <typename Law>
void for_every_schedule(const Range& range, Law law) {
  for (const PipeAlgorithm& algorithm : pipe_algorithms()) {
    for (int p = 1; p <= range.ranks_max; ++p) {
      for (int v = 1; v <= range.chunks_max; ++v) {
        for (int m = 1; m <= range.microbatches_max; ++m) {
          const PipeParams params = {p, v, m};
          if (!algorithm.refuse(params).empty()) continue;
          law(algorithm, params);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

std::string name_of(const PipeAlgorithm& algorithm, const PipeParams& params) {
  return std::string(algorithm.name) + " p " + std::to_string(params.ranks) + " v " +
         std::to_string(params.chunks) + " m " + std::to_string(params.microbatches);
}

TEST(PipeSchedules, AllAreProvedAndHoldTheirClosedFormOfLiveMicrobatchesUpTo8Ranks32Microbatches) {
  for_every_schedule({8, 4, 32}, [](const PipeAlgorithm& algorithm, const PipeParams& params) {
    const PipeVerdict verdict = verify(generate(algorithm, params));
    ASSERT_TRUE(verdict.proved()) << verdict.failure << "\n" << verdict.drawing;
    for (int rank = 0; rank < params.ranks; ++rank) {
      ASSERT_EQ(verdict.facts.peak_live[static_cast<std::size_t>(rank)],
                algorithm.peak_live(params, rank))
          << name_of(algorithm, params) << " rank " << rank;
    }
  });
}

TEST(PipeSchedules, SimulatedBubbleIsTheClosedFormWhereExactAndNeverAboveIt) {
  for_every_schedule({8, 4, 32}, [](const PipeAlgorithm& algorithm, const PipeParams& params) {
    const PipeSchedule schedule = generate(algorithm, params);
    for (const PipeTimes& times :
         {PipeTimes{1, 1, 1, 0}, PipeTimes{1, 1.5, 0.5, 0}, PipeTimes{2, 2, 1, 0}}) {
      const double simulated = simulate(schedule, times).bubble;
      const double closed = algorithm.bubble(params, times);
      ASSERT_LE(simulated, closed + 1e-9) << name_of(algorithm, params);
      if (!algorithm.exact(params, times)) continue;
      ASSERT_NEAR(simulated, closed, 1e-9) << name_of(algorithm, params);
    }
  });
}

TEST(PipeSchedules, TextFormRoundTrips) {
  for_every_schedule({4, 3, 6}, [](const PipeAlgorithm& algorithm, const PipeParams& params) {
    const PipeSchedule schedule = generate(algorithm, params);
    ASSERT_EQ(parse_pipe_schedule(print(schedule)), schedule) << name_of(algorithm, params);
  });
}

}  // namespace
}  // namespace sinew::sched
