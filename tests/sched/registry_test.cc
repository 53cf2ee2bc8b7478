// Every row of the table of collective algorithms, in every world up to 64: proved, counted against
// its closed form, and simulated against it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bench/bound.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/collective/registry.h"
#include "sched/simulate.h"
#include "sched/verify.h"
#include "tests/sanitized.h"

namespace sinew::sched {
namespace {

constexpr int kMostRanks = 64;

std::string name_of_case(const Algorithm& row, const Params& params) {
  return fmt::format("{}/{} world {} root {} segments {}", name_of(row.op), row.name, params.world,
                     params.root, params.segments);
}

// A root that differs from world to world and is rarely 0.
Params params_of(int world) { return {.world = world, .root = (world * 7 + 3) % world}; }

constexpr Prices kPrices = {.alpha_s = 1e-6, .beta_s_per_byte = 1e-10, .gamma_s_per_byte = 0.5e-10};

Topology machine_of(int world) {
  return homogeneous(world, {kPrices.alpha_s, kPrices.beta_s_per_byte}, kPrices.gamma_s_per_byte);
}

// A sanitizer looks at the code that runs, not at what it proves.
bool is_thinned(int world) { return testing::kSanitized && world > 9 && world % 16 > 1; }

template <typename Body>
void for_each_row(int most_ranks, Body body) {
  testing::say_thinned("worlds above 9 are multiples of 16 and one more");
  for (const Algorithm& row : algorithms()) {
    int worlds = 0;
    for (int world = 1; world <= most_ranks; ++world) {
      if (is_thinned(world)) continue;
      const Params params = params_of(world);
      if (!row.refuse(params).empty()) continue;
      ++worlds;
      body(row, params);
    }
    // Rows for powers of two only have the fewest.
    EXPECT_GE(worlds, floor_log2(most_ranks) + 1) << row.name;
  }
}

// The longest run of steps that send to one rank: of a message in parts, or of several messages.
int longest_run(const Schedule& schedule) {
  int longest = 1;
  for (const Program& program : schedule.programs) {
    int run = 0;
    int peer = -1;
    for (const Step& step : program.steps) {
      run = step.verb != Verb::kSend ? 0 : step.peer == peer ? run + 1 : 1;
      peer = step.verb == Verb::kSend ? step.peer : -1;
      longest = std::max(longest, run);
    }
  }
  return longest;
}

void expect_proved_at_closed_cost(const Algorithm& row, const Params& params) {
  const Schedule schedule = generate(row, params);
  const Verdict verdict = verify(schedule);
  const std::string name = name_of_case(row, params);
  ASSERT_TRUE(verdict.proved()) << name << ": " << verdict.failure << "\n" << verdict.drawing;
  EXPECT_EQ(cost_difference(row, params, verdict.facts.cost), "") << name;
  EXPECT_LE(verdict.facts.credits, 1) << name;
  // PAT alone needs more in larger worlds: 41 for all_gather of 82 ranks, whose runs are of 16.
  if (params.world <= kMostRanks) {
    EXPECT_LE(verdict.facts.credits_in_order, 2 * longest_run(schedule)) << name;
  }
  EXPECT_TRUE(verdict.facts.same_expression || row.op == Collective::kBarrier) << name;
}

TEST(Registry, EveryRowIsProvedInEveryWorldTo64AndCostsWhatItsClosedFormSays) {
  for_each_row(kMostRanks, expect_proved_at_closed_cost);
}

// Legal worlds of a row from 65 to 1024, of which one is drawn for each row; a row that has many
// steps there has it drawn from the lower half, again, until a rank's times the world are few
// enough, but not for SINEW_TEST_FULL, which proves 1024 as well.
TEST(Registry, EveryRowIsProvedInASampledWorldTo1024) {
  const char* text = std::getenv("SINEW_SEED");
  const std::uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 20261201;
  const bool is_full = std::getenv("SINEW_TEST_FULL") != nullptr;
  std::printf("SINEW_SEED=%llu\n", static_cast<unsigned long long>(seed));
  const std::size_t most_steps = testing::kSanitized ? 8'000 : 40'000;
  std::mt19937_64 random(seed);
  for (const Algorithm& row : algorithms()) {
    std::vector<int> worlds;
    for (int world = kMostRanks + 1; world <= 1024; ++world)
      if (row.refuse(params_of(world)).empty()) worlds.push_back(world);
    ASSERT_FALSE(worlds.empty()) << row.name;
    if (is_full && worlds.back() == 1024) expect_proved_at_closed_cost(row, params_of(1024));
    const auto drawn = [&] { return worlds[random() % worlds.size()]; };
    const auto steps = [&](int world) {
      return generate(row, params_of(world), 1).programs[1].steps.size();
    };
    int world = drawn();
    for (; !is_full && worlds.size() > 1 &&
           steps(world) * static_cast<std::size_t>(world) > most_steps;
         world = drawn())
      worlds.resize((worlds.size() + 1) / 2);
    SCOPED_TRACE("world " + std::to_string(world));
    expect_proved_at_closed_cost(row, params_of(world));
  }
}

// The least, small ones, primes, one of a world's size, and the largest.
TEST(Registry, FamiliesAreProvedAtTheirClosedCostForAnyRadix) {
  int families = 0;
  for (const Algorithm& family : algorithms()) {
    if (family.radix == 0 || !family.family.empty()) continue;
    ++families;
    for (const int radix : {2, 5, 6, 7, 12, 16, 33, kMaxRadix}) {
      const Algorithm& row = find_algorithm(family.op, fmt::format("{}_{}", family.name, radix));
      EXPECT_EQ(row.radix, radix);
      for (const int world : {1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 16, 17, 25, 31, 33, 36, 49, 64}) {
        if (is_thinned(world) || !row.refuse(params_of(world)).empty()) continue;
        expect_proved_at_closed_cost(row, params_of(world));
      }
    }
  }
  EXPECT_GE(families, 10);
}

TEST(Registry, ARadixOutOfRangeIsOneLineWithTheLegalForms) {
  for (const char* name : {"bruck_1", "bruck_0", "bruck_257", "bruck_", "bruck_03", "bruck_x",
                           "ring_3", "bruck_3_3"}) {
    try {
      (void)find_algorithm(Collective::kAllGather, name);
      ADD_FAILURE() << name << " was found";
    } catch (const UsageError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("bruck, bruck_R"), std::string::npos) << text;
      EXPECT_NE(text.find("R from 2 to 256"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
}

// As many rounds with r-1 ports as the logarithm says, which is what a radix is for.
TEST(Registry, AFamilyOfALargerRadixHasFewerPhases) {
  for (const int radix : {2, 3, 4, 8}) {
    const Algorithm& row =
        find_algorithm(Collective::kAllGather, fmt::format("circulant_{}", radix));
    int phases = 0;
    int size = 1;
    for (; size < kMostRanks; size *= radix) ++phases;
    EXPECT_EQ(row.cost({.world = size}).rounds, phases * (radix - 1)) << row.name;
  }
}

TEST(Registry, SegmentedRowsAreProvedAtTheirClosedCostForAnyNumberOfSegments) {
  int rows = 0;
  for (const Algorithm& row : algorithms()) {
    if (!row.segmented) continue;
    ++rows;
    for (const int segments : {2, 3, 8, 17}) {
      for (const int world : {1, 2, 3, 4, 5, 8, 13, 31, 33}) {
        Params params = params_of(world);
        params.segments = segments;
        expect_proved_at_closed_cost(row, params);
      }
    }
  }
  EXPECT_GE(rows, 3);
}

TEST(Registry, TheDoubleTreeTakesAtMostTwoSlotsPerLevelAndPiece) {
  const Algorithm& row = find_algorithm(Collective::kBroadcast, "double_tree");
  for (int world = 2; world <= 200; ++world) {
    for (const int segments : {1, 7, 100}) {
      const double slots = row.cost({.world = world, .segments = segments}).rounds;
      EXPECT_LE(slots, 2 * ceil_log2(world) + 2 * segments - 2) << world << " " << segments;
      EXPECT_GE(slots, ceil_log2(world) + 2 * segments - 1) << world << " " << segments;
    }
  }
}

TEST(Registry, EveryRootIsProved) {
  for (const Algorithm& row : algorithms()) {
    const Contract contract{.op = row.op};
    if (!contract.rooted()) continue;
    for (int world = 2; world <= 9; ++world) {
      for (int root = 0; root < world; ++root) {
        const Params params = {.world = world, .root = root};
        if (!row.refuse(params).empty()) continue;
        const Verdict verdict = verify(generate(row, params));
        EXPECT_TRUE(verdict.proved()) << name_of_case(row, params) << ": " << verdict.failure;
      }
    }
  }
}

TEST(Registry, ACountThatDiffersIsNoticedEitherWay) {
  for (const Algorithm& row : algorithms()) {
    const Params params = {.world = 8};
    const Cost closed = row.cost(params);
    EXPECT_EQ(cost_difference(row, params, closed), "") << row.name;
    for (const double by : {-1.0 - row.slack, 1.0}) {
      Cost other = closed;
      other.rounds += by;
      EXPECT_NE(cost_difference(row, params, other), "") << row.name;
      other = closed;
      other.bytes += by;
      EXPECT_NE(cost_difference(row, params, other), "") << row.name;
      other = closed;
      other.reduced += by;
      EXPECT_NE(cost_difference(row, params, other), "") << row.name;
    }
  }
}

TEST(Registry, NoClosedFormIsBelowTheLowerBoundOfItsOperation) {
  for_each_row(kMostRanks, [](const Algorithm& row, const Params& params) {
    const Cost cost = row.cost(params);
    const Cost bound = bench::lower_bound(row.op, params.world);
    constexpr double kRounding = 1e-12;
    const std::string name = name_of_case(row, params);
    EXPECT_GE(cost.rounds + kRounding, bound.rounds) << name;
    EXPECT_GE(cost.bytes + kRounding, bound.bytes) << name;
    EXPECT_GE(cost.reduced + kRounding, bound.reduced) << name;
  });
}

// The closed form adds up three coefficients, each of them a longest chain; the chains may be
// different ones, so that the simulated time may be less. It may be more only by contention that
// the synchronous model does not know.
TEST(Registry, SimulatedTimeIsAtMostTheClosedFormTimesOnePointZeroFive) {
  for_each_row(kMostRanks, [](const Algorithm& row, const Params& params) {
    // Every third world, and all those next to a power of two.
    if (params.world % 3 != 0 && !is_power_of_two(params.world) &&
        !is_power_of_two(params.world + 1) && !is_power_of_two(params.world - 1)) {
      return;
    }
    const Schedule schedule = generate(row, params);
    const Topology topology = machine_of(params.world);
    for (const std::int64_t size : {64, 64 << 10, 64 << 20}) {
      const std::int64_t chunks = schedule.contract.chunks();
      SimulateOptions options;
      options.bytes = std::max<std::int64_t>(size / chunks, 1) * chunks;
      options.timeline = false;
      const double closed = row.cost(params).seconds(kPrices, options.bytes);
      const double seconds = simulate_fastest(schedule, topology, options).seconds;
      EXPECT_LE(seconds, 1.05 * closed) << name_of_case(row, params) << " " << size << " bytes";
      EXPECT_GE(seconds, 0.5 * closed) << name_of_case(row, params) << " " << size << " bytes";
    }
  });
}

TEST(Registry, PipelinedTimeIsAtMostTheClosedFormTimesOnePointZeroFive) {
  for (const Algorithm& row : algorithms()) {
    if (!row.segmented) continue;
    for (const int world : {2, 3, 4, 7, 8, 16, 28, 33, 64}) {
      for (const std::int64_t size : {64 << 10, 16 << 20}) {
        Params params = {.world = world};
        params.segments = best_segments(row, params, kPrices, size);
        SimulateOptions options;
        options.bytes = size / (2 * params.segments) * (2 * params.segments);  // equal chunks
        options.timeline = false;
        const double closed = row.cost(params).seconds(kPrices, options.bytes);
        const double seconds =
            simulate_fastest(generate(row, params), machine_of(world), options).seconds;
        EXPECT_LE(seconds, 1.05 * closed) << name_of_case(row, params);
        // Pipelining hides the reductions, a third of the time here, behind the transfers.
        EXPECT_GE(seconds, 0.6 * closed) << name_of_case(row, params);
      }
    }
  }
}

// k = sqrt(m b (L-1) / 2a) for a broadcast: 2.6 for 64 KiB between 8 ranks, 41 for 16 MiB.
TEST(Registry, BestSegmentsAreNearTheFormulaAndPipeliningPays) {
  const Algorithm& row = find_algorithm(Collective::kBroadcast, "double_tree");
  const Params params = {.world = 8};
  EXPECT_NEAR(best_segments(row, params, kPrices, 64 << 10), 2.6, 1.5);
  EXPECT_NEAR(best_segments(row, params, kPrices, 16 << 20), 41, 12);
  EXPECT_EQ(best_segments(row, params, kPrices, 0), 1);
  const Algorithm& ring = find_algorithm(Collective::kAllReduce, "ring");
  EXPECT_EQ(best_segments(ring, params, kPrices, 16 << 20), 1);
}

// A lane that holds as many segments as verify says it must hold messages is enough, however many
// segments there are.
TEST(Registry, TheReportedCreditsAreEnoughForSegmentsToo) {
  for (const Algorithm& row : algorithms()) {
    for (const int world : {2, 3, 4, 5, 8}) {
      const Params params = params_of(world);
      if (!row.refuse(params).empty()) continue;
      const Schedule schedule = generate(row, params);
      SimulateOptions options;
      options.bytes = 64 << 10;
      options.segments = 3;
      options.credits = verify(schedule).facts.credits;
      options.timeline = false;
      EXPECT_NO_THROW((void)simulate(schedule, machine_of(world), options))
          << name_of_case(row, params);
    }
  }
}

TEST(Registry, NamesAreUniqueWithinAnOperationAndFoundAgain) {
  std::set<std::pair<Collective, std::string_view>> seen;
  for (const Algorithm& row : algorithms()) {
    EXPECT_TRUE(seen.insert({row.op, row.name}).second) << row.name;
    EXPECT_EQ(&find_algorithm(row.op, row.name), &row);
    EXPECT_FALSE(row.formula.empty());
    EXPECT_FALSE(row.source.empty());
  }
}

TEST(Registry, TheReadmeNamesEveryRow) {
  std::ifstream file(std::string(SINEW_SOURCE_DIR) + "/sched/README.md");
  std::ostringstream text;
  text << file.rdbuf();
  for (const Algorithm& row : algorithms()) {
    EXPECT_NE(text.str().find(row.name), std::string::npos) << row.name;
    EXPECT_NE(text.str().find("| " + std::string(name_of(row.op)) + " |"), std::string::npos)
        << name_of(row.op);
  }
}

TEST(Registry, BadParametersAreOneLineWithTheLegalValues) {
  const Algorithm& ring = find_algorithm(Collective::kAllReduce, "ring");
  const Algorithm& halving = find_algorithm(Collective::kReduceScatter, "halving");
  const auto refusal = [](const Algorithm& row, const Params& params) -> std::string {
    try {
      (void)generate(row, params);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  for (const std::string& text :
       {refusal(ring, {.world = 0}), refusal(ring, {.world = kMaxWorld + 1}),
        refusal(ring, {.world = 4, .root = 4}), refusal(ring, {.world = 4, .root = -1}),
        refusal(ring, {.world = 4, .segments = 2}), refusal(ring, {.world = 4, .segments = 0}),
        refusal(halving, {.world = 6})}) {
    EXPECT_NE(text.find("legal values"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  EXPECT_THROW((void)find_algorithm(Collective::kAllReduce, "rings"), UsageError);
}

TEST(Registry, ARankGeneratesItsOwnProgramOf1024RanksInWellUnderASecond) {
  for (const Algorithm& row : algorithms()) {
    const Params params = {.world = 1024, .root = 5};
    if (!row.refuse(params).empty()) continue;
    const std::clock_t start =
        std::clock();  // of this process: other work on the machine is not counted
    const Schedule schedule = generate(row, params, 777);
    const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_LT(took, testing::kSanitized ? 8 : 0.8) << name_of_case(row, params);
    EXPECT_FALSE(schedule.programs[777].steps.empty()) << name_of_case(row, params);
    EXPECT_TRUE(schedule.programs[776].steps.empty()) << name_of_case(row, params);
  }
}

}  // namespace
}  // namespace sinew::sched
