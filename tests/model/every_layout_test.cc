// The layout law over the whole product: TP, CP and its modes, sequence parallelism, PP with every
// schedule and number of chunks, DP, ZeRO and its groups, recomputation, microbatches, each in
// every precision: dropout on, ragged masks, clipping active, tied and untied heads, grouped
// queries, a vocabulary of GPT-2's size. `make test` draws a few of each; `make test-full` runs
// all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "model/layouts.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

struct Case {
  const char* name;
  const char* model;
  std::int64_t batch;
  std::int64_t seq;
};

// Four layers give every schedule two chunks on two ranks; no number of ranks divides the
// vocabularies.
constexpr Case kGpt2 = {
    "gpt2", R"({"layers": 4, "heads": 4, "channels": 16, "vocabulary": 53, "max_time": 8})", 8, 8};
constexpr Case kGpt2Untied = {"gpt2_untied",
                              R"({"layers": 4, "heads": 4, "channels": 16, "vocabulary": 53,
                                  "max_time": 8, "tied": false})",
                              8, 8};
constexpr Case kLlama = {"llama",
                         R"({"family": "llama", "layers": 4, "heads": 4, "kv_heads": 2,
                             "channels": 16, "hidden": 24, "vocabulary": 53, "max_time": 8,
                             "tied": false})",
                         8, 8};
constexpr Case kLlamaTied = {"llama_tied",
                             R"({"family": "llama", "layers": 4, "heads": 4, "kv_heads": 1,
                                 "channels": 16, "hidden": 24, "vocabulary": 53, "max_time": 8})",
                             8, 8};
constexpr Case kVocabulary = {
    "vocabulary", R"({"layers": 2, "heads": 2, "channels": 4, "vocabulary": 50257, "max_time": 4})",
    4, 4};

struct Law {
  Case c;
  const char* dtype;
  int world;
  std::size_t drawn;     // in `make test`
  std::size_t most = 0;  // in full; 0: all
  const char* rounding = "nearest";
  const char* gradients = "auto";
};

class EveryLayout : public testing::TestWithParam<Law> {};

TEST_P(EveryLayout, EveryCombinationTrainsTheModelOfOneRank) {
  const Law law = GetParam();
  const test::ScratchDirectory directory;
  TrainOptions base;
  base.model = directory.write("model.json", law.c.model);
  base.dtype = law.dtype;
  base.rounding = law.rounding;
  base.gradients = law.gradients;
  base.batch = law.c.batch;
  base.seq = law.c.seq;
  base.lr = 3e-3;
  base.clip = 0.05;
  base.dropout = 0.1;
  base.threads = 1;
  TrainOptions single = base;
  single.microbatches = 1;
  const LayoutRun reference = test::run_on_threads(single, 1, 2);
  EXPECT_GT(reference.norms.front(), base.clip);
  std::vector<TrainOptions> layouts = enumerate_every_layout(base, law.world, {1, 2, 4});
  const bool full = std::getenv("SINEW_TEST_FULL") != nullptr;
  layouts = test::sample(layouts, !full ? law.drawn : law.most == 0 ? layouts.size() : law.most);
  ASSERT_FALSE(layouts.empty());
  for (const TrainOptions& options : layouts) {
    const LayoutError error = compare_runs(reference, test::run_on_threads(options, law.world, 2));
    const double bound = layout_bound(law.dtype, law.gradients);
    EXPECT_LE(error.largest(), bound)
        << name_of(options) << ", first above " << error.first_above(bound);
  }
}

std::vector<Law> laws() {
  std::vector<Law> laws;
  for (const Case& c : {kGpt2, kLlama}) {
    for (const int world : {2, 4}) {
      for (const char* dtype : {"f64", "f32", "bf16"}) laws.push_back({c, dtype, world, 4});
      laws.push_back({c, "bf16", world, 4, 0, "stochastic"});
      laws.push_back({c, "bf16", world, 4, 0, "nearest", "bf16"});
    }
    laws.push_back({c, "f64", 8, 4, 2000});
  }
  for (const Case& c : {kGpt2Untied, kLlamaTied}) {
    for (const int world : {2, 3, 4}) laws.push_back({c, "f64", world, 4});
  }
  laws.push_back({kVocabulary, "f64", 2, 2, 100});
  laws.push_back({kVocabulary, "f32", 4, 2, 100});
  return laws;
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryLayout, testing::ValuesIn(laws()), [](const auto& law) {
  return std::string(law.param.c.name) + "_" + law.param.dtype +
         (law.param.rounding[0] == 's' ? "_sr" : "") +
         (law.param.gradients[0] == 'b' ? "_g16_" : "_") + std::to_string(law.param.world);
});

// The product has every axis in it: each option takes every value it may somewhere.
TEST(EveryLayoutOf, FourRanksIncludesEveryValueOfEveryAxis) {
  const test::ScratchDirectory directory;
  TrainOptions base;
  base.model = directory.write("model.json", kGpt2.model);
  base.batch = 8;
  base.seq = 8;
  const std::vector<TrainOptions> layouts = enumerate_every_layout(base, 4, {1, 2, 4});
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
  EXPECT_TRUE(has([](const auto& o) { return o.sequence_parallel && o.cp > 1; }));
  EXPECT_TRUE(has([](const auto& o) { return o.tp > 1 && o.pp > 1 && !o.sequence_parallel; }));
  std::set<std::string> names;
  for (const TrainOptions& options : layouts) names.insert(name_of(options));
  EXPECT_EQ(names.size(), layouts.size());  // each once
  std::printf("%zu layouts\n", layouts.size());
}

}  // namespace
}  // namespace sinew::model
