// The layout law over threads: every TP x PP x DP x ZeRO layout trains the one-rank model.
#include "model/layouts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <mutex>

#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::run_on_threads;

// 24 heads so that 3 and 6 ranks can share them, a vocabulary that no number of ranks divides, and
// a batch that up to 8 replicas share.
TrainOptions base_options(const test::ScratchDirectory& directory, const std::string& dtype) {
  TrainOptions options;
  options.model = test::write_model(
      directory, {.layers = 4, .heads = 24, .channels = 48, .vocabulary = 53, .max_time = 6});
  options.dtype = dtype;
  options.batch = 24;
  options.seq = 5;
  options.lr = 3e-3;
  options.clip = 0.5;  // active: the first norm is larger
  options.threads = 1;
  options.seed = 77;
  return options;
}

struct Law {
  const char* dtype;
  int world;
};

class LayoutLaw : public testing::TestWithParam<Law> {};

TEST_P(LayoutLaw, EveryLayoutTrainsTheModelOfOneRank) {
  const auto [dtype, world] = GetParam();
  const test::ScratchDirectory directory;
  const TrainOptions base = base_options(directory, dtype);
  TrainOptions single = base;
  single.microbatches = 1;
  const LayoutRun reference = run_on_threads(single, 1, 2);
  EXPECT_GT(reference.norms.front(), base.clip);
  const std::vector<TrainOptions> layouts =
      test::sample(enumerate_layouts(base, world, {1, 3}), 10);
  ASSERT_FALSE(layouts.empty());
  for (const TrainOptions& options : layouts) {
    const LayoutError error = compare_runs(reference, run_on_threads(options, world, 2));
    EXPECT_LE(error.largest(), layout_bound(dtype))
        << name_of(options) << ", worst " << error.worst_tensor;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, LayoutLaw,
                         testing::Values(Law{"f64", 1}, Law{"f64", 2}, Law{"f64", 3}, Law{"f64", 4},
                                         Law{"f64", 6}, Law{"f64", 8}, Law{"f32", 2}, Law{"f32", 4},
                                         Law{"f32", 8}, Law{"bf16", 4}),
                         [](const auto& law) {
                           return std::string(law.param.dtype) + "_" +
                                  std::to_string(law.param.world);
                         });

// The same tensor and data split and the same number of microbatches: whatever the pipeline does,
// the same bits.
TEST(Layouts, ThoseThatDifferOnlyInThePipelineAgreeBitForBit) {
  const test::ScratchDirectory directory;
  struct Split {
    int tp;
    int dp;
    int zero;
    int most_ranks;
    const char* dtype = "f32";
    int shard = 0;
    const char* rounding = "nearest";
    const char* gradients = "auto";
  };
  for (const Split split :
       {Split{1, 3, 1, 6}, Split{2, 1, 0, 8}, Split{2, 2, 1, 8}, Split{1, 2, 2, 6},
        Split{1, 2, 3, 6}, Split{1, 2, 2, 4, "bf16"}, Split{1, 4, 2, 8, "bf16", 2},
        Split{1, 4, 3, 8, "f32", 2}, Split{1, 2, 2, 4, "bf16", 0, "stochastic"},
        Split{2, 1, 0, 4, "bf16", 0, "stochastic"}, Split{1, 2, 0, 4, "bf16", 0, "nearest", "bf16"},
        Split{2, 2, 1, 8, "bf16", 0, "nearest", "bf16"},
        Split{1, 2, 3, 4, "bf16", 0, "stochastic", "bf16"}}) {
    TrainOptions options = base_options(directory, split.dtype);
    options.tp = split.tp;
    options.dp = split.dp;
    options.zero = split.zero;
    options.shard = split.shard;
    options.rounding = split.rounding;
    options.gradients = split.gradients;
    options.batch = 12 * split.dp;
    options.microbatches = 3;
    LayoutRun first;
    for (int pp = 1; split.tp * pp * split.dp <= split.most_ranks; ++pp) {
      for (const sched::PipeAlgorithm& schedule : sched::pipe_algorithms()) {
        options.pp = pp;
        options.schedule = schedule.name;
        if (pp * schedule.default_chunks > 4) continue;  // one layer a stage is the least
        const LayoutRun run = run_on_threads(options, split.tp * pp * split.dp, 1);
        if (first.losses.empty()) first = run;
        const LayoutError error = compare_runs(first, run);
        EXPECT_TRUE(error.bits_equal) << name_of(options) << " differs by " << error.largest()
                                      << " in " << error.worst_tensor;
      }
    }
  }
}

// Cut over any number of ranks, units of any size leave remainders, and every microbatch moves.
TEST(Layouts, EveryZeroStageOnAnyNumberOfRanksTrainsTheModelOfOneRank) {
  const test::ScratchDirectory directory;
  TrainOptions options = base_options(directory, "f64");
  options.batch = 60;
  const LayoutRun reference = run_on_threads(options, 1, 2);
  for (const int dp : {2, 3, 5}) {
    for (int zero = 0; zero <= 3; ++zero) {
      for (const char* recompute : {"none", "full"}) {
        options.dp = dp;
        options.zero = zero;
        options.microbatches = 2;
        options.recompute = recompute;
        const LayoutError error = compare_runs(reference, run_on_threads(options, dp, 2));
        EXPECT_LE(error.largest(), layout_bound("f64"))
            << name_of(options) << ", worst " << error.worst_tensor;
      }
    }
  }
}

// Groups of every size, over replicas and context ranks together; a group of all is no group.
TEST(Layouts, ZeroOverGroupsOfAnySizeTrainsTheModelOfOneRank) {
  const test::ScratchDirectory directory;
  TrainOptions base = base_options(directory, "f64");
  base.seq = 6;
  base.batch = 24;
  base.microbatches = 1;
  const LayoutRun reference = run_on_threads(base, 1, 1);
  struct Ranks {
    int dp;
    int cp;
    int tp;
  };
  for (const Ranks ranks : {Ranks{4, 1, 1}, Ranks{2, 3, 1}, Ranks{2, 2, 2}}) {
    const int data = ranks.dp * ranks.cp;
    for (int zero = 1; zero <= 3; ++zero) {
      TrainOptions options = base;
      options.dp = ranks.dp;
      options.cp = ranks.cp;
      options.cp_mode = "striped";
      options.tp = ranks.tp;
      options.zero = zero;
      options.microbatches = 2;
      LayoutRun whole;
      for (int shard = 0; shard <= data; ++shard) {
        if (shard > 0 && data % shard != 0) continue;
        options.shard = shard;
        const LayoutRun run = run_on_threads(options, data * ranks.tp, 1);
        const LayoutError error = compare_runs(reference, run);
        EXPECT_LE(error.largest(), layout_bound("f64"))
            << name_of(options) << ", worst " << error.worst_tensor;
        if (shard == 0) whole = run;
        if (shard == data) {
          EXPECT_TRUE(compare_runs(whole, run).bits_equal) << name_of(options);
        }
      }
    }
  }
}

// Gathered again or kept: the same weights, so the same bits, whatever the pipeline, its schedule,
// recomputation and the groups; and evaluation between steps leaves nothing gathered behind.
TEST(Layouts, WeightsKeptForBackwardChangeNoBit) {
  const test::ScratchDirectory directory;
  for (const char* dtype : {"f32", "bf16"}) {
    TrainOptions options = base_options(directory, dtype);
    options.zero = 3;
    options.microbatches = 3;
    options.batch = 12;
    for (const int dp : {2, 4}) {
      for (const int pp : {1, 2}) {
        for (const sched::PipeAlgorithm& schedule : sched::pipe_algorithms()) {
          if (pp == 1 && schedule.name != "1f1b") continue;
          options.dp = dp;
          options.pp = pp;
          options.schedule = schedule.name;
          options.shard = dp == 4 ? 2 : 0;
          options.recompute = pp == 1 ? "full,none,selective,none" : "none";
          options.reshard_after = "forward";
          const LayoutRun again = run_on_threads(options, dp * pp, 2);
          options.reshard_after = "backward";
          const LayoutError error = compare_runs(again, run_on_threads(options, dp * pp, 2));
          EXPECT_TRUE(error.bits_equal) << name_of(options) << " in " << dtype << " differs by "
                                        << error.largest() << " in " << error.worst_tensor;
        }
      }
    }
  }
}

TEST(Layouts, KeepingWeightsThatAreNotGatheredIsOneLine) {
  TrainOptions options;
  options.dp = 2;
  const auto refused = [&] {
    return test::usage_error_of([&] { static_cast<void>(make_plan(options, 2)); });
  };
  options.reshard_after = "never";
  EXPECT_NE(refused().find("--reshard-after 'never'; legal values: forward, backward"),
            std::string::npos);
  options.reshard_after = "backward";
  for (options.zero = 0; options.zero < 3; ++options.zero)
    EXPECT_NE(refused().find("legal: --zero 3, or --reshard-after forward"), std::string::npos);
  EXPECT_EQ(refused(), "");
}

TEST(Layouts, GroupsThatDoNotFitAreOneLine) {
  TrainOptions options;
  options.dp = 4;
  options.shard = 2;
  const auto refused = [&] {
    return test::usage_error_of([&] { static_cast<void>(make_plan(options, 4)); });
  };
  EXPECT_NE(refused().find("legal: zero 1, 2, 3, or shard 0"), std::string::npos);
  options.zero = 2;
  EXPECT_EQ(refused(), "");
  options.shard = 3;
  EXPECT_NE(refused().find("4 data ranks (dp x cp) into equal groups; legal shard: 1, 2, 4, 0"),
            std::string::npos);
}

// The order of the axes places ranks; it changes no number.
TEST(Layouts, TheOrderOfTheAxesChangesNoBit) {
  const test::ScratchDirectory directory;
  TrainOptions options = base_options(directory, "f32");
  options.tp = options.pp = options.dp = 2;
  options.zero = 1;
  LayoutRun first;
  for (const char* order : {"tp,cp,pp,dp", "dp,pp,tp,cp", "pp,dp,cp,tp"}) {
    options.order = order;
    const LayoutRun run = run_on_threads(options, 8, 2);
    if (first.losses.empty()) first = run;
    EXPECT_TRUE(compare_runs(first, run).bits_equal) << order;
  }
}

// A comparison that cannot fail proves nothing: a wrong weight, a NaN and a missing factor must
// show.
TEST(LayoutErrors, DamageShows) {
  LayoutRun a;
  a.losses = {1.0};
  a.norms = {2.0};
  a.gradients["w"] = {1.0, 2.0};
  a.weights["w"] = {1.0, 2.0};
  a.gradients["a"] = a.weights["a"] = {4.0};
  a.names = {"w", "a"};  // model order, not the alphabet's
  LayoutRun b = a;
  EXPECT_TRUE(compare_runs(a, b).bits_equal);
  b.gradients["w"][1] = 2.0 + 1e-9;
  EXPECT_GT(compare_runs(a, b).largest(), layout_bound("f64"));
  EXPECT_FALSE(compare_runs(a, b).bits_equal);
  // 2 is its own unit's 2^52-fold.
  b.gradients["w"][1] = 2.0 + 0x1p-51 * 3;
  b.gradients["a"][0] = 4.0 - 0x1p-51;
  const LayoutError small = compare_runs(a, b);
  ASSERT_EQ(small.tensors.size(), 2U);
  EXPECT_EQ(small.tensors[0].gradient_ulp, 3);
  EXPECT_EQ(small.tensors[0].weight_ulp, 0);
  EXPECT_EQ(small.tensors[1].gradient_ulp, 0.5);
  EXPECT_EQ(small.first_divergent(), "w");
  EXPECT_EQ(small.first_above(1e-10), "");
  b.weights["a"][0] = 5;
  b.gradients["w"][1] = 2.0;
  EXPECT_EQ(compare_runs(a, b).first_divergent(), "a");
  EXPECT_EQ(compare_runs(a, b).first_above(1e-10), "a");
  b.gradients["w"][1] = std::nan("");
  EXPECT_GT(compare_runs(a, b).largest(), 1.0);
}

// The trainer itself, with one rank that finds one tensor's gradient twice as large: whatever the
// layout, model and tensor, that tensor is named first. Tensors meet layouts drawn for them; and
// with replicas the fault may lie in a copy that nobody reads.
TEST(LayoutErrors, TheTensorOfWhichARunningTrainerFindsAWrongGradientIsNamed) {
  std::size_t number = 0;
  for (const LawModel& model : law_models()) {
    TrainOptions base = law_options(4);
    base.model = model.json;
    base.dtype = "f64";
    TrainOptions single = base;
    single.microbatches = 1;
    const LayoutRun reference = run_on_threads(single, 1, 2);
    const std::vector<std::string> names = parameter_names(load_config(base.model));
    const std::vector<TrainOptions> layouts =
        test::sample(enumerate_every_layout(base, 4, {1, 2, 4}), names.size());
    // In `make test` a few, others each day.
    const bool full = std::getenv("SINEW_TEST_FULL") != nullptr;
    const std::size_t stride = full ? 1 : model.name == "vocabulary" ? 16 : 4;
    const std::size_t today = static_cast<std::size_t>(std::time(nullptr)) / 86400;
    for (std::size_t i = today % stride; i < names.size(); i += stride) {
      const LayoutRun run = run_on_threads(layouts[i], 4, 2, names[i]);
      const LayoutError error = compare_runs(reference, run);
      EXPECT_EQ(error.first_above(layout_bound("f64")), names[i])
          << name_of(layouts[i]) << " of " << model.name;
      ++number;
    }
  }
  std::printf("%zu wrong gradients\n", number);
}

// A copy that nobody reads a gradient from: the second tensor rank's of a norm, the second
// replica's of what ZeRO does not cut.
TEST(LayoutErrors, ACopyThatDiffersFromAnotherIsNoSmallError) {
  TrainOptions options = law_options(2);
  options.dtype = "f64";
  options.tp = 2;
  const std::string name = "h.1.ln_2.weight";
  const LayoutRun right = run_on_threads(options, 2, 1);
  const LayoutRun wrong = run_on_threads(options, 2, 1, name);
  EXPECT_TRUE(std::isnan(wrong.gradients.at(name).front()));
  EXPECT_EQ(compare_runs(right, wrong).first_above(1), name);
}

// One rank's part of one gradient, scaled by half a thousandth, as a rank that forgot a factor
// would leave it: whatever the tensor, the report names it, with its error in units in the last
// place, though the norm and with it every weight moved.
TEST(LayoutErrors, ATensorOfWhichOneRankScalesItsPartIsTheOneNamed) {
  TrainOptions options = law_options(2);
  options.dtype = "f64";
  options.tp = 2;
  options.dp = 1;
  options.microbatches = 1;
  const LayoutRun run = run_on_threads(options, 2, 1);
  const Config config = load_config(options.model);
  const FlatLayout second =
      flat_layout(config, {StageShape{0, config.layers, true, true}}, {.rank = 1, .world = 2});
  for (const Parameter& p : second.parameters) {
    LayoutRun faulty = run;
    for (auto& [name, weights] : faulty.weights) {
      for (double& w : weights) w *= 1 + 1e-6;
    }
    faulty.norms.front() *= 1 + 1e-6;
    std::vector<double>& gradient = faulty.gradients.at(p.name);
    double largest = 0;
    p.slice.for_each_run([&](std::int64_t, std::int64_t at, std::int64_t count) {
      for (std::int64_t i = at; i < at + count; ++i) {
        gradient[static_cast<std::size_t>(i)] *= 1 + 0x1p-11;
        largest = std::max(largest, std::abs(gradient[static_cast<std::size_t>(i)]));
      }
    });
    if (largest < 1e-12) continue;  // a key bias: a softmax does not see it
    const LayoutError error = compare_runs(run, faulty);
    EXPECT_EQ(error.first_divergent(), p.name);
    EXPECT_EQ(error.first_above(layout_bound("f64")), p.name);
    EXPECT_EQ(error.worst_tensor, p.name);
    for (const LayoutError::OfTensor& t : error.tensors)
      EXPECT_EQ(t.gradient_ulp > 0, t.name == p.name) << t.name;
  }
}

}  // namespace
}  // namespace sinew::model
