// The layout law over the whole product: TP, CP and its modes, sequence parallelism, PP with every
// schedule and number of chunks, DP, ZeRO and its groups, recomputation, microbatches, each in
// every precision: dropout on, ragged masks, clipping active, tied and untied heads, grouped
// queries, a vocabulary of GPT-2's size. `make test` draws a few of each; `make test-full` runs
// all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "model/layouts.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

constexpr std::int64_t kMicrobatches[] = {1, 2, 4};

struct Law {
  LawPrecision precision;
  int world;
  std::size_t drawn;     // in `make test`
  std::size_t most = 0;  // in full; 0: all
  std::string_view model = "each in turn";
};

std::vector<TrainOptions> layouts_of(const Law& law) {
  TrainOptions base = law_options(law.world);
  law.precision.apply(base);
  const std::vector<std::int64_t> microbatches(std::begin(kMicrobatches), std::end(kMicrobatches));
  for (const LawModel& of : law_models()) {
    if (of.name != law.model) continue;
    base.model = of.json;
    return enumerate_every_layout(base, law.world, microbatches);
  }
  return enumerate_in_turns(base, law.world, microbatches, 0);
}

class EveryLayout : public testing::TestWithParam<Law> {};

TEST_P(EveryLayout, EveryCombinationTrainsTheModelOfOneRank) {
  const Law law = GetParam();
  std::vector<TrainOptions> layouts = layouts_of(law);
  const bool full = std::getenv("SINEW_TEST_FULL") != nullptr;
  layouts = test::sample(layouts, !full ? law.drawn : law.most == 0 ? layouts.size() : law.most);
  ASSERT_FALSE(layouts.empty());
  std::map<std::string, LayoutRun> references;  // by model
  for (const TrainOptions& options : layouts) {
    LayoutRun& reference = references[options.model];
    if (reference.losses.empty()) {
      TrainOptions single = law_options(law.world);
      law.precision.apply(single);
      single.model = options.model;
      single.microbatches = 1;
      reference = test::run_on_threads(single, 1, kLawSteps);
      EXPECT_GT(reference.norms.front(), single.clip);
    }
    const LayoutError error =
        compare_runs(reference, test::run_on_threads(options, law.world, kLawSteps));
    const double bound = layout_bound(options.dtype, options.gradients);
    EXPECT_LE(error.largest(), bound) << name_of(options) << " of " << options.model
                                      << ", first above " << error.first_above(bound);
  }
}

// Every precision with every model in turn; in f64, where a difference is no rounding, every model
// with every layout of two ranks, and worlds that are no power of two or larger.
std::vector<Law> laws() {
  std::vector<Law> laws;
  for (const LawPrecision& precision : law_precisions()) {
    for (const int world : {2, 4}) laws.push_back({precision, world, 4});
  }
  const LawPrecision f64 = law_precisions().front();
  for (const LawModel& model : law_models()) laws.push_back({f64, 2, 1, 0, model.name});
  laws.push_back({f64, 3, 4});
  laws.push_back({f64, 8, 4, 2000});
  return laws;
}

std::string name_of_law(const testing::TestParamInfo<Law>& law) {
  std::string name = std::string(law.param.precision.name) + "_" + std::to_string(law.param.world) +
                     "_" + std::string(law.param.model);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == ' '; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryLayout, testing::ValuesIn(laws()), name_of_law);

// The product has every axis in it: each option takes every value it may somewhere.
TEST(EveryLayoutOf, FourRanksIncludesEveryValueOfEveryAxis) {
  const std::vector<TrainOptions> layouts = enumerate_in_turns(law_options(4), 4, {1, 2, 4}, 0);
  const auto has = [&](auto&& holds) { return std::any_of(layouts.begin(), layouts.end(), holds); };
  for (const sched::PipeAlgorithm& schedule : sched::pipe_algorithms()) {
    EXPECT_TRUE(has([&](const auto& o) { return o.pp > 1 && o.schedule == schedule.name; }))
        << schedule.name;
  }
  for (const char* mode : {"zigzag", "contiguous", "striped", "ulysses"})
    EXPECT_TRUE(has([&](const auto& o) { return o.cp > 1 && o.cp_mode == mode; })) << mode;
  for (const char* recompute : {"none", "selective", "full"})
    EXPECT_TRUE(has([&](const auto& o) { return o.recompute == recompute; })) << recompute;
  for (int zero = 0; zero <= 3; ++zero) {
    EXPECT_TRUE(has([&](const auto& o) { return o.zero == zero && o.pp > 1; })) << zero;
    EXPECT_EQ(has([&](const auto& o) { return o.zero == zero && o.shard == 2; }), zero > 0);
  }
  EXPECT_TRUE(has([](const auto& o) { return o.reshard_after == "backward" && o.pp > 1; }));
  EXPECT_TRUE(has([](const auto& o) { return o.reshard_after == "backward" && o.shard == 2; }));
  EXPECT_TRUE(has([](const auto& o) { return o.sequence_parallel && o.cp > 1; }));
  EXPECT_TRUE(has([](const auto& o) { return o.tp > 1 && o.pp > 1 && !o.sequence_parallel; }));
  for (const LawModel& model : law_models())
    EXPECT_TRUE(has([&](const auto& o) { return o.model == model.json; })) << model.name;
  EXPECT_TRUE(std::all_of(layouts.begin(), layouts.end(),
                          [](const auto& o) { return o.dropout > 0 && o.clip > 0 && o.clip < 1; }));
  std::set<std::string> names;
  for (const TrainOptions& options : layouts) names.insert(name_of(options));
  EXPECT_EQ(names.size(), layouts.size());  // each once
  std::printf("%zu layouts\n", layouts.size());
}

}  // namespace
}  // namespace sinew::model
