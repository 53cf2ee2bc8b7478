// The layout law where ranks share sequences: sequence parallelism, every mode of context
// parallelism, both families, dropout on: any split trains the one-rank model.
#include <gtest/gtest.h>

#include <mutex>

#include "model/layouts.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::run_on_threads;

struct Case {
  const char* name;
  const char* model;
  double dropout;
};

// 8 heads that up to 8 tensor ranks share, of which Llama's read 2 or 4 key/value heads; 16
// positions, so that 8 context ranks have two pieces each; a vocabulary that nothing divides.
constexpr Case kCases[] = {
    {"gpt2", R"({"layers": 2, "heads": 8, "channels": 32, "vocabulary": 53, "max_time": 16})", 0.2},
    {"gpt2_untied",
     R"({"layers": 2, "heads": 8, "channels": 16, "vocabulary": 53, "max_time": 16,
         "tied": false})",
     0},
    {"llama",
     R"({"family": "llama", "layers": 2, "heads": 8, "kv_heads": 2, "channels": 32, "hidden": 48,
         "vocabulary": 53, "max_time": 16, "tied": false})",
     0.1},
    {"llama_tied",
     R"({"family": "llama", "layers": 2, "heads": 8, "kv_heads": 4, "channels": 32, "hidden": 40,
         "vocabulary": 53, "max_time": 16, "rope_theta": 100})",
     0},
};

TrainOptions base_options(const test::ScratchDirectory& directory, const Case& c,
                          const std::string& dtype) {
  TrainOptions options;
  options.model = directory.write(std::string(c.name) + ".json", c.model);
  options.dtype = dtype;
  options.batch = 8;
  options.microbatches = 1;
  options.seq = 16;
  options.lr = 3e-3;
  options.clip = 0.5;
  options.dropout = c.dropout;
  options.threads = 1;
  options.seed = 77;
  return options;
}

struct Law {
  Case c;
  const char* dtype;
  int world;
};

class SequenceLayoutLaw : public testing::TestWithParam<Law> {};

TEST_P(SequenceLayoutLaw, EveryLayoutTrainsTheModelOfOneRank) {
  const Law law = GetParam();
  const test::ScratchDirectory directory;
  const TrainOptions base = base_options(directory, law.c, law.dtype);
  const LayoutRun reference = run_on_threads(base, 1, 2);
  EXPECT_GT(reference.norms.front(), base.clip);
  std::vector<TrainOptions> layouts = enumerate_sequence_layouts(base, law.world);
  ASSERT_FALSE(layouts.empty());
  // The plain splits of this family too.
  for (const TrainOptions& options : enumerate_layouts(base, law.world, {2})) {
    if (options.schedule == "1f1b") layouts.push_back(options);
  }
  layouts = test::sample(layouts, law.world == 8 ? 24 : 20);
  int number = 0;
  for (TrainOptions& options : layouts) {
    // Recomputation and more microbatches than one join some of them.
    const char* kinds[] = {"none", "full", "selective"};
    options.recompute = kinds[number++ % 3];
    if (options.batch / options.dp % 4 == 0 && number % 2 == 0) options.microbatches = 2;
    const LayoutError error = compare_runs(reference, run_on_threads(options, law.world, 2));
    EXPECT_LE(error.largest(), layout_bound(law.dtype))
        << name_of(options) << ", worst " << error.worst_tensor;
  }
}

std::vector<Law> laws() {
  std::vector<Law> laws;
  for (const Case& c : kCases) {
    for (const int world : {2, 4}) laws.push_back({c, "f64", world});
  }
  laws.push_back({kCases[0], "f64", 8});
  laws.push_back({kCases[2], "f64", 8});
  laws.push_back({kCases[0], "f32", 4});
  laws.push_back({kCases[2], "f32", 4});
  laws.push_back({kCases[0], "bf16", 4});
  laws.push_back({kCases[2], "bf16", 4});
  return laws;
}

INSTANTIATE_TEST_SUITE_P(Ranks, SequenceLayoutLaw, testing::ValuesIn(laws()), [](const auto& law) {
  return std::string(law.param.c.name) + "_" + law.param.dtype + "_" +
         std::to_string(law.param.world);
});

// Each piece of a product is on its way while the next is computed; every element is the same sum.
TEST(SequenceLayouts, RowChunksChangeNoBit) {
  const test::ScratchDirectory directory;
  for (const Case& c : {kCases[0], kCases[2]}) {
    for (const char* dtype : {"f32", "bf16"}) {
      for (const char* recompute : {"none", "full"}) {
        TrainOptions options = base_options(directory, c, dtype);
        options.sequence_parallel = true;
        options.recompute = recompute;
        options.tp = 4;
        const LayoutRun whole = run_on_threads(options, 4, 2);
        for (const int chunks : {2, 4, 16}) {
          options.row_chunks = chunks;
          EXPECT_TRUE(compare_runs(whole, run_on_threads(options, 4, 2)).bits_equal)
              << name_of(options) << " " << c.name << " " << dtype;
        }
      }
    }
  }
}

TEST(SequenceLayouts, RowChunksThatDoNotFitAreOneLine) {
  const test::ScratchDirectory directory;
  TrainOptions options = base_options(directory, kCases[0], "f32");
  options.tp = 2;
  options.row_chunks = 2;
  const auto refused = [&] {
    return test::usage_error_of([&] { static_cast<void>(make_plan(options, 2)); });
  };
  EXPECT_NE(refused().find("legal row chunks: 1"), std::string::npos) << refused();
  options.sequence_parallel = true;
  EXPECT_EQ(refused(), "");
  options.row_chunks = 3;  // 8 x 16 rows over 2 ranks
  EXPECT_NE(refused().find("3 row chunks do not cut the 64 rows"), std::string::npos) << refused();
  EXPECT_NE(refused().find("legal row chunks: 1, 2, 4, 8, 16"), std::string::npos) << refused();
}

// Dropout without a pipeline and with one that splits the backward, whatever the schedule: the same
// bits, so the same masks.
TEST(SequenceLayouts, DropoutDrawsTheSameMasksUnderEverySchedule) {
  const test::ScratchDirectory directory;
  TrainOptions options = base_options(directory, kCases[0], "f32");
  options.microbatches = 4;
  const LayoutRun reference = run_on_threads(options, 1, 2);
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    options.pp = 2;
    options.schedule = schedule;
    EXPECT_TRUE(compare_runs(reference, run_on_threads(options, 2, 2)).bits_equal) << schedule;
  }
}

// What makes the comparison above worth something: dropout changes a run, and so does its seed.
TEST(SequenceLayouts, DropoutChangesTheRunAndSoDoesItsSeed) {
  const test::ScratchDirectory directory;
  TrainOptions options = base_options(directory, kCases[0], "f64");
  const LayoutRun dropped = run_on_threads(options, 1, 1);
  options.dropout = 0;
  const LayoutRun plain = run_on_threads(options, 1, 1);
  EXPECT_GT(std::abs(dropped.losses[0] - plain.losses[0]), 1e-4);
}

}  // namespace
}  // namespace sinew::model
