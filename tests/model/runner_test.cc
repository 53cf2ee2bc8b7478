// The pipeline: any number of stages and microbatches, every schedule, uneven layers, trains the
// model of one rank bit for bit; evaluation may come between steps.
#include "model/runner.h"

#include <gtest/gtest.h>

#include <mutex>
#include <utility>

#include "model/layouts.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::run_ranks;
using test::ScratchDirectory;

TrainOptions base_options(const ScratchDirectory& directory) {
  TrainOptions options;
  options.model = test::write_model(
      directory, {.layers = 9, .heads = 2, .channels = 16, .vocabulary = 19, .max_time = 4});
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
    if (world.rank() == options.pp - 1) result = own;  // every rank knows all
  });
  return result;
}

// Nine layers are uneven for all but one and three stages; six microbatches are a multiple of two
// and three ranks, five of none.
TEST(Runner, EveryScheduleStagesAndMicrobatchesGiveTheBitsOfOneStage) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  for (const std::int64_t m : {1, 2, 5, 6}) {
    options.pp = 1;
    options.schedule = "1f1b";
    options.chunks = 1;
    options.microbatches = m;
    const LayoutRun one = run(options);
    for (const sched::PipeAlgorithm& schedule : sched::pipe_algorithms()) {
      for (int pp = 1; pp <= 4; ++pp) {
        options.pp = pp;
        options.schedule = schedule.name;
        options.chunks = schedule.default_chunks;
        EXPECT_TRUE(compare_runs(one, run(options)).bits_equal) << name_of(options);
      }
    }
  }
}

TEST(Runner, InterleavedTakesAnyNumberOfChunks) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.microbatches = 5;
  const LayoutRun one = run(options);
  options.schedule = "interleaved";
  for (const auto& [pp, chunks] : {std::pair{2, 3}, {2, 4}, {3, 3}, {4, 2}}) {
    options.pp = pp;
    options.chunks = chunks;
    EXPECT_TRUE(compare_runs(one, run(options)).bits_equal) << name_of(options);
  }
}

// What a layer computes again has the bits it had, under whole and split backwards.
TEST(Runner, RecomputationChangesNoBit) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.microbatches = 3;
  const LayoutRun one = run(options);
  options.pp = 2;
  for (const sched::PipeAlgorithm& schedule : sched::pipe_algorithms()) {
    for (const char* recompute :
         {"selective", "full", "none,full,selective,none,full,full,selective,none,none"}) {
      options.schedule = schedule.name;
      options.chunks = schedule.default_chunks;
      options.recompute = recompute;
      EXPECT_TRUE(compare_runs(one, run(options)).bits_equal) << name_of(options);
    }
  }
}

// Any proved schedule runs: three ranks that hold their two stages in no usual order, the first
// rank's in the middle of the model.
TEST(Runner, AScheduleFromAFileRuns) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.microbatches = 2;
  const LayoutRun one = run(options);
  options.schedule =
      directory.write("mine.txt",
                      "pipeline mine ranks 3 chunks 2 microbatches 2\n"
                      "placement 2 0 0 1 2 1\n"
                      "rank 0: F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 B2.1 W2.0 W1.0 W2.1 B1.1 W1.1\n"
                      "rank 1: F3.0 F5.0 F3.1 B5.0 F5.1 B5.1 B3.0 B3.1 W5.0 W3.0 W3.1 W5.1\n"
                      "rank 2: F0.0 F0.1 F4.0 F4.1 B4.0 B4.1 W4.0 B0.0 W4.1 B0.1 W0.0 W0.1\n");
  options.microbatches = 0;
  options.pp = 3;
  EXPECT_TRUE(compare_runs(one, run(options)).bits_equal);
}

TEST(Runner, ASchedulefileThatCannotRunIsOneLine) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.pp = 2;
  const auto refusal = [&](const std::string& text) {
    options.schedule = directory.write("mine.txt", text);
    return test::usage_error_of([&] { static_cast<void>(make_plan(options, 2)); });
  };
  const std::string head = "pipeline mine ranks 2 chunks 1 microbatches 2\n";
  EXPECT_EQ(refusal(head + "rank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.0 B1.0 F1.1 B1.1\n"), "");
  const auto expect = [&](const std::string& text, const std::string& part) {
    const std::string message = refusal(text);
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "'";
  };
  expect(head + "rank 0: F0.0 F0.1 B0.0\nrank 1: F1.0 B1.0 F1.1 B1.1\n", "B0.1");
  expect(head + "rank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.1 B1.0 F1.0 B1.1\n", "F1.0");
  expect(head + "rank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.1 F1.0 B1.0 B1.1\n", "out of order");
  expect("nonsense\n", "line 1");
  options.microbatches = 4;
  expect(head + "rank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.0 B1.0 F1.1 B1.1\n",
         "microbatches 2, not 4");
  options.schedule = "zigzag";
  const std::string unknown =
      test::usage_error_of([&] { static_cast<void>(make_plan(options, 2)); });
  EXPECT_NE(unknown.find("gpipe, 1f1b, interleaved"), std::string::npos) << unknown;
}

TEST(Runner, EvaluationBetweenStepsChangesNothingAndIsTheSameInEveryLayout) {
  const ScratchDirectory directory;
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 4, .heads = 2, .channels = 16});
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
        if (evaluates || i == 3) validation = trainer->validate().value();
      }
      own.push_back(validation);
      const std::lock_guard<std::mutex> lock(mutex);
      numbers = own;
    });
    return numbers;
  };
  const std::vector<double> one = train(false);
  EXPECT_EQ(train(true), one);
  for (const sched::PipeAlgorithm& schedule : sched::pipe_algorithms()) {
    options.schedule = schedule.name;
    options.pp = 4 / schedule.default_chunks;
    options.microbatches = 1;
    EXPECT_EQ(train(true), one) << schedule.name;
  }
  options.schedule = "1f1b";
  options.tp = 2;
  options.pp = 2;
  options.dp = 2;
  options.microbatches = 2;
  const std::vector<double> many = train(true);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 1e-5 * one[i]);
}

}  // namespace
}  // namespace sinew::model
