// Laws of every row of the table of pipeline schedules: proved, and counted equal to its closed
// forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "sched/base/error.h"
#include "sched/base/text.h"
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

// Equal; the backward longer, as with attention; the weight gradient longest; the forward longest;
// no weight gradient.
constexpr PipeTimes kTimes[] = {
    {1, 1, 1, 0}, {1, 1.5, 0.5, 0}, {2, 3, 4, 0}, {4, 2, 3, 0}, {1, 2, 0, 0}};

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

TEST(PipeSchedules, ProvedAndCountedAt16RanksToo) {
  for (const PipeAlgorithm& algorithm : pipe_algorithms()) {
    for (const int m : {1, 2, 7, 15, 16, 17, 31, 32, 33}) {
      const PipeParams params = {16, algorithm.default_chunks, m};
      const PipeVerdict verdict = verify(generate(algorithm, params));
      ASSERT_TRUE(verdict.proved()) << verdict.failure << "\n" << verdict.drawing;
      for (int rank = 0; rank < params.ranks; ++rank) {
        ASSERT_EQ(verdict.facts.peak_live[static_cast<std::size_t>(rank)],
                  algorithm.peak_live(params, rank))
            << name_of(algorithm, params) << " rank " << rank;
      }
      const PipeTimes times = {1, 1.5, 1, 0};
      ASSERT_TRUE(algorithm.exact(params, times));
      ASSERT_NEAR(simulate(generate(algorithm, params), times).bubble,
                  algorithm.bubble(params, times), 1e-9);
    }
  }
}

TEST(PipeSchedules, ClosedFormsHoldForRandomDurations) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto up_to = [&random](int most) {
      return 1 + static_cast<int>(random() % static_cast<unsigned>(most));
    };
    const PipeTimes times = {up_to(20) / 10.0, up_to(20) / 10.0, up_to(20) / 10.0, 0};
    for (const PipeAlgorithm& algorithm : pipe_algorithms()) {
      const PipeParams params = {up_to(6), algorithm.default_chunks, up_to(14)};
      const double simulated = simulate(generate(algorithm, params), times).bubble;
      const double closed = algorithm.bubble(params, times);
      ASSERT_LE(simulated, closed + 1e-9) << name_of(algorithm, params) << " seed " << seed;
      if (!algorithm.exact(params, times)) continue;
      ASSERT_NEAR(simulated, closed, 1e-9) << name_of(algorithm, params) << " seed " << seed;
    }
  }
}

// Each boundary between two stages on different ranks carries each microbatch forth and back. One
// buffered message per stream is enough, but where an interleaved group is larger than p.
TEST(PipeSchedules, MessagesAreCountedAndCreditsAreFew) {
  for_every_schedule({6, 3, 14}, [](const PipeAlgorithm& algorithm, const PipeParams& params) {
    const PipeSchedule schedule = generate(algorithm, params);
    int boundaries = 0;
    for (int stage = 1; stage < schedule.stages(); ++stage) {
      boundaries += schedule.rank_of(stage) != schedule.rank_of(stage - 1) ? 1 : 0;
    }
    const PipeFacts facts = verify(schedule).facts;
    ASSERT_EQ(facts.messages, 2 * params.microbatches * boundaries) << name_of(algorithm, params);
    const int groups = std::max(1, params.microbatches / params.ranks);
    const int largest = (params.microbatches + groups - 1) / groups;
    const int queue = algorithm.name == "interleaved" ? largest - params.ranks + 1 : 1;
    ASSERT_LE(facts.credits, std::max(1, queue)) << name_of(algorithm, params);
  });
}

// F = 1, B + W = 2, p = 4.
TEST(PipeSchedules, GoldenBubblesAndPeaksOfFourRanks) {
  struct Golden {
    const char* name;
    PipeParams params;
    double bubble;
    std::vector<int> peak_live;
  };
  for (const Golden& golden :
       std::vector<Golden>{{"gpipe", {4, 1, 8}, 3.0 / 8, {8, 8, 8, 8}},
                           {"1f1b", {4, 1, 8}, 3.0 / 8, {4, 3, 2, 1}},
                           {"interleaved", {4, 2, 8}, 3.0 / 16, {11, 9, 7, 5}},
                           {"interleaved", {4, 4, 8}, 3.0 / 32, {19, 17, 15, 13}},
                           {"1f1b", {4, 1, 12}, 9.0 / 36, {4, 3, 2, 1}},
                           {"zb-h1", {4, 1, 12}, 3.0 / 36, {4, 4, 4, 4}},
                           {"zb-h2", {4, 1, 12}, 0, {7, 7, 7, 7}},
                           {"zb-v", {4, 2, 12}, 0, {8, 8, 8, 8}}}) {
    const PipeSchedule schedule = generate(find_pipe_algorithm(golden.name), golden.params);
    EXPECT_NEAR(simulate(schedule, PipeTimes{}).bubble, golden.bubble, 1e-12) << golden.name;
    EXPECT_EQ(verify(schedule).facts.peak_live, golden.peak_live) << golden.name;
  }
}

// A transfer of d per boundary: the first microbatch's way forth and back has 2(p-1) of them on the
// critical path of GPipe, which hides all others behind the busiest rank when d is short.
TEST(PipeSchedules, TransfersLengthenGpipeByThoseOfOneMicrobatch) {
  for (int p = 1; p <= 6; ++p) {
    const PipeSchedule schedule = generate(find_pipe_algorithm("gpipe"), {p, 1, 8});
    const double without = simulate(schedule, {1, 1, 1, 0}).makespan;
    EXPECT_NEAR(simulate(schedule, {1, 1, 1, 0.25}).makespan, without + 2 * (p - 1) * 0.25, 1e-9);
  }
}

TEST(PipeSchedules, TimesMayDifferPerStage) {
  const PipeSchedule schedule = generate(find_pipe_algorithm("gpipe"), {2, 1, 3});
  const PipeTimes times[] = {{1, 1, 1, 0}, {2, 2, 2, 0}};
  const PipeSimulation simulation = simulate(schedule, times);
  EXPECT_EQ(simulation.ideal, 3 * 6);
  EXPECT_EQ(simulation.makespan, 1 + 3 * 6 + 2);
}

// Every row's file shows it, under a line "// Drawn: NAME p P v V m M", as draw_text draws it.
TEST(PipeSchedules, PicturesInTheSourcesAreTheDrawnSchedules) {
  std::set<std::string> shown;
  for (const auto& file : std::filesystem::directory_iterator(SINEW_SOURCE_DIR "/sched/pipeline")) {
    std::ifstream in(file.path());
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      constexpr std::string_view kDrawn = "// Drawn: ";
      if (!lines[i].starts_with(kDrawn)) continue;
      const std::vector<std::string_view> words =
          fields(std::string_view(lines[i]).substr(kDrawn.size()));
      ASSERT_EQ(words.size(), 7U) << lines[i];
      const auto number = [&](std::size_t word) {
        return static_cast<int>(parse_int(words[word], lines[i]));
      };
      const PipeParams params = {number(2), number(4), number(6)};
      const PipeSchedule schedule = generate(find_pipe_algorithm(words[0]), params);
      constexpr std::string_view kIndent = "//   ";
      const std::string drawn = draw_text(simulate(schedule, PipeTimes{}).timeline,
                                          static_cast<int>(lines[i + 2].size() - kIndent.size()));
      const std::vector<std::string_view> expected = split(drawn, '\n');
      for (std::size_t row = 0; row < static_cast<std::size_t>(params.ranks); ++row) {
        EXPECT_EQ(lines[i + 2 + row], std::string(kIndent) + std::string(expected[1 + row]))
            << lines[i];
      }
      shown.insert(std::string(words[0]));
    }
  }
  for (const PipeAlgorithm& algorithm : pipe_algorithms()) {
    EXPECT_TRUE(shown.contains(std::string(algorithm.name)))
        << algorithm.name << " shows no picture";
  }
}

TEST(PipeSchedules, ReadmeListsEveryRowWithItsFormula) {
  std::ifstream in(SINEW_SOURCE_DIR "/sched/pipeline/README.md");
  const std::string readme((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (const PipeAlgorithm& algorithm : pipe_algorithms()) {
    const std::string row =
        "| " + std::string(algorithm.name) + " | " + std::string(algorithm.formula) + " |";
    EXPECT_NE(readme.find(row), std::string::npos) << row;
  }
}

TEST(PipeSchedules, TextFormRoundTrips) {
  for_every_schedule({4, 3, 6}, [](const PipeAlgorithm& algorithm, const PipeParams& params) {
    const PipeSchedule schedule = generate(algorithm, params);
    ASSERT_EQ(parse_pipe_schedule(print(schedule)), schedule) << name_of(algorithm, params);
  });
}

}  // namespace
}  // namespace sinew::sched
