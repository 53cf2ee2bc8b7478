// bf16 weights and activations with f32 masters: what the masters are for, and how far a run in
// bf16 may be from one in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/layouts.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

TrainOptions base_options(const test::ScratchDirectory& directory) {
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 2, .heads = 2, .channels = 32});
  options.data = test::write_text_data(directory);
  options.batch = 4;
  options.threads = 1;
  options.dtype = "bf16";
  return options;
}

// An update below 2^-9 of a weight changes no bf16 value, so without masters nothing would ever
// move.
TEST(MixedPrecision, MastersKeepUpdatesThatAreBelowHalfAUnitOfTheWeights) {
  const test::ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.lr = options.min_lr = 1e-6;
  options.weight_decay = 0;
  test::run_ranks(1, [&](comm::Communicator& ranks) {
    const auto trainer = Trainer::create(make_plan(options, 1), ranks);
    const Trainer::Tensors before = trainer->gather_weights();
    for (int i = 0; i < 10; ++i) static_cast<void>(trainer->step());
    const Trainer::Tensors after = trainer->gather_weights();
    const std::vector<double>& norm = after.at("ln_f.weight");
    int moved = 0;
    for (std::size_t i = 0; i < norm.size(); ++i) {
      EXPECT_LT(std::abs(norm[i] - 1), 0x1p-9);
      moved += norm[i] != before.at("ln_f.weight")[i] ? 1 : 0;
    }
    EXPECT_GT(moved, 16);
  });
}

// Without masters they are rounded by chance instead, and move on average.
TEST(MixedPrecision, StochasticRoundingMovesWeightsWithoutMasters) {
  const test::ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.rounding = "stochastic";
  options.lr = options.min_lr = 1e-4;  // a fortieth of the unit above 1, 1/80 of that below
  options.weight_decay = 0;
  test::run_ranks(1, [&](comm::Communicator& ranks) {
    const auto trainer = Trainer::create(make_plan(options, 1), ranks);
    const auto mean = [&] {
      double sum = 0;
      int moved = 0;
      for (const auto& [name, tensor] : trainer->gather_weights()) {
        if (name.find("ln_") == std::string::npos || !name.ends_with("weight")) continue;
        for (const double value : tensor) {
          EXPECT_EQ(value, static_cast<double>(to_float(to_bf16(static_cast<float>(value)))));
          sum += std::abs(value - 1);
          moved += value != 1 ? 1 : 0;
        }
      }
      return std::pair(sum / (5 * 32), moved);
    };
    EXPECT_EQ(mean().second, 0);
    for (int i = 0; i < 10; ++i) static_cast<void>(trainer->step());
    const auto [distance, moved] = mean();
    // Some drew the neighbour, most did not; ten steps of at most 1e-4 are their mean.
    EXPECT_GT(moved, 10);
    EXPECT_LT(moved, 100);
    EXPECT_GT(distance, 1e-4);
    EXPECT_LT(distance, 2e-3);
  });
}

// The draw of an element depends on the seed, the step and its place in the logical tensor: not on
// which ranks hold it, and not on the element's neighbours. Microbatches of one sequence and two
// data ranks give every ZeRO stage the same sums.
TEST(MixedPrecision, StochasticRoundingIsTheSameHoweverWeightsAreCut) {
  const test::ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.rounding = "stochastic";
  options.clip = 0;  // the norm's own last bits depend on the cut
  options.lr = 1e-3;
  options.dp = 2;
  options.microbatches = 1;
  LayoutRun first;
  for (int zero = 0; zero <= 3; ++zero) {
    options.zero = zero;
    const LayoutRun run = test::run_on_threads(options, 2, 3);
    if (zero == 0) first = run;
    EXPECT_EQ(run.weights, first.weights) << zero;
  }
  options.seed += 1;
  EXPECT_NE(test::run_on_threads(options, 2, 3).weights, first.weights);
}

// From the same weights (masters are those of an f32 run) the first step's loss and gradients are
// those of f32 up to the roundings that layout_bound() counts; and it learns as f32 does.
TEST(MixedPrecision, StepsAreThoseOfF32UpToRounding) {
  const test::ScratchDirectory directory;
  const auto run = [&](const char* dtype) {
    TrainOptions options = base_options(directory);
    options.dtype = dtype;
    options.lr = 1e-2;
    options.steps = 30;
    LayoutRun result;
    test::run_ranks(1, [&](comm::Communicator& ranks) {
      const auto trainer = Trainer::create(make_plan(options, 1), ranks);
      result.weights = trainer->gather_weights();
      for (int i = 0; i < 30; ++i) {
        const StepMetrics metrics = trainer->step();
        result.losses.push_back(metrics.loss);
        if (i == 0) result.norms.push_back(metrics.gradient_norm);
        if (i == 0) result.gradients = trainer->gather_gradients();
      }
    });
    return result;
  };
  const LayoutRun f32 = run("f32");
  const LayoutRun bf16 = run("bf16");
  EXPECT_EQ(f32.weights, bf16.weights);
  const double last = bf16.losses.back();
  EXPECT_NEAR(last, f32.losses.back(), 0.05 * f32.losses.back());
  EXPECT_LT(last, 0.6 * bf16.losses.front());
  LayoutRun first[2] = {f32, bf16};
  for (LayoutRun& one : first) one.losses.resize(1);
  const LayoutError error = compare_runs(first[0], first[1]);
  EXPECT_LE(error.largest(), layout_bound("bf16")) << error.worst_tensor;
  // Two-sided: something was rounded.
  EXPECT_GT(error.gradient, 0x1p-12);
  EXPECT_LT(error.loss, 0x1p-7);
}

// Kept in bf16 they are those of f32 up to the roundings that layout_bound() counts, and every one
// of them is a bf16.
TEST(MixedPrecision, NarrowGradientsAreThoseOfF32RoundedAndTakeHalfTheBytes) {
  const test::ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.microbatches = 4;
  const LayoutRun wide = test::run_on_threads(options, 1, 2);
  options.gradients = "bf16";
  const LayoutRun narrow = test::run_on_threads(options, 1, 2);
  const LayoutError error = compare_runs(wide, narrow);
  EXPECT_LE(error.gradient, 4 * std::sqrt(8.0) * 0x1p-9) << error.worst_tensor;
  EXPECT_GT(error.gradient, 0x1p-12);  // something was rounded
  for (const auto& [name, tensor] : narrow.gradients) {
    for (const double value : tensor)
      ASSERT_EQ(value, static_cast<double>(to_float(to_bf16(static_cast<float>(value))))) << name;
  }
  const auto bytes = [&](const char* gradients) {
    options.gradients = gradients;
    double found = 0;
    test::run_ranks(1, [&](comm::Communicator& ranks) {
      for (const Compared& row : Trainer::create(make_plan(options, 1), ranks)->summary().compared)
        if (row.name == "gradients") found = row.measured;
    });
    return found;
  };
  EXPECT_EQ(bytes("auto"), 2 * bytes("bf16"));
  EXPECT_GT(bytes("bf16"), 0);
  options.dtype = "f32";
  EXPECT_NE(test::usage_error_of([&] {
              static_cast<void>(make_plan(options, 1));
            }).find("--gradients bf16 is of bf16 weights, not f32"),
            std::string::npos);
}

}  // namespace
}  // namespace sinew::model
