// The pipeline: any number of stages and microbatches, every schedule, uneven layers, trains the
// model of one rank bit for bit; evaluation may come between steps.
#include "model/runner.h"

#include <gtest/gtest.h>

#include <mutex>

#include "model/layouts.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::run_ranks;
using test::ScratchDirectory;

TrainOptions base_options(const ScratchDirectory& directory) {
  TrainOptions options;
  options.model = test::write_model(
      directory, {.layers = 5, .heads = 2, .channels = 16, .vocabulary = 19, .max_time = 4});
  options.batch = 60;  // any number of microbatches up to six
  options.seq = 3;
  options.threads = 1;
  return options;
}

LayoutRun run(const TrainOptions& options) {
  LayoutRun result;
  std::mutex mutex;
  run_ranks(options.pp, [&](comm::Communicator& world) {
    const TrainPlan plan = make_plan(options, options.pp);
    const LayoutRun own = run_layout(plan, world, make_batch(plan, 3), 2);
    const std::lock_guard<std::mutex> lock(mutex);
    if (world.rank() == options.pp - 1) result = own;  // the last stage knows all the first does
  });
  return result;
}

TEST(Runner, EveryScheduleStagesAndMicrobatchesGiveTheBitsOfOneStage) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  for (const std::int64_t m : {1, 2, 3, 5, 6}) {
    options.pp = 1;
    options.schedule = "1f1b";
    options.microbatches = m;
    const LayoutRun one = run(options);
    for (const char* schedule : {"gpipe", "1f1b"}) {
      for (int pp = 2; pp <= 5; ++pp) {
        options.pp = pp;
        options.schedule = schedule;
        EXPECT_TRUE(compare_runs(one, run(options)).bits_equal) << name_of(options);
      }
    }
  }
}

TEST(Runner, EvaluationBetweenStepsChangesNothingAndIsTheSameInEveryLayout) {
  const ScratchDirectory directory;
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 3, .heads = 2, .channels = 16});
  options.data = test::write_text_data(directory);
  options.batch = 8;
  options.steps = 4;
  options.eval_windows = 7;  // does not fill the last round of microbatches
  options.threads = 1;
  const auto train = [&](bool evaluates) {
    std::vector<double> numbers;
    std::mutex mutex;
    const int world = options.tp * options.pp * std::max(1, options.dp);
    run_ranks(world, [&](comm::Communicator& ranks) {
      const auto trainer = Trainer::create(make_plan(options, world), ranks);
      double validation = 0;
      std::vector<double> own;
      for (int i = 0; i < 4; ++i) {
        own.push_back(trainer->step().loss);
        if (evaluates || i == 3) validation = trainer->validate();
      }
      own.push_back(validation);
      const std::lock_guard<std::mutex> lock(mutex);
      numbers = own;
    });
    return numbers;
  };
  const std::vector<double> one = train(false);
  EXPECT_EQ(train(true), one);
  options.pp = 3;
  options.microbatches = 1;
  EXPECT_EQ(train(true), one);
  options.tp = 2;
  options.pp = 2;
  options.dp = 2;
  options.microbatches = 2;
  const std::vector<double> many = train(true);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 1e-5 * one[i]);
}

}  // namespace
}  // namespace sinew::model
