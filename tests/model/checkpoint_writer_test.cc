// Checkpoints written beside the training: the same bytes as one written between steps, however
// long the writing takes; one at a time; what goes wrong in the thread reaches every rank.
#include "model/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <mutex>

#include "model/initialize.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::ScratchDirectory;

// Two data ranks that cut everything.
struct Rank {
  explicit Rank(comm::Communicator& world)
      : parallel(world, sched::Grid({1, 1, 1, world.world()})),
        stage(test::optimizer_config(),
              StageParts::one(test::optimizer_config(), {0, 2, true, true}), {}, nullptr, {1, 5},
              {.zero = sched::Zero::kParameters, .data = parallel.data()}, {}, memory),
        optimizer(stage, parallel, {.zero = 3}, test::optimizer_names(), {}, memory) {
    initialize_weights(1, stage);
  }
  // Changes every weight and moment.
  void change() {
    for (const Piece& piece : optimizer.owned()) {
      for (std::int64_t i = 0; i < piece.count; ++i) {
        stage.weights()[piece.weight_begin + i] += 1;
        optimizer.first_moment()[piece.state_begin + i] += 2;
        optimizer.second_moment()[piece.state_begin + i] += 3;
      }
    }
  }
  static TrainingState state(std::int64_t step) {
    TrainingState state;
    state.step = step;
    state.config = test::optimizer_config();
    state.dtype = "f32";
    return state;
  }
  Memory memory;
  Parallel parallel;
  Stage<float> stage;
  Optimizer<float> optimizer;
};

std::string bytes_of(const std::string& run) {
  const CheckpointPaths paths = find_checkpoint(run);
  return test::read_file(paths.model) + test::read_file(paths.optimizer) +
         test::read_file(paths.state);
}

TEST(CheckpointWriter, WritesWhatWasThereAtItsStartHoweverLateItWrites) {
  const ScratchDirectory directory;
  const std::string expected = directory.path("expected");
  const std::string run = directory.path("run");
  test::run_ranks(2, [&](comm::Communicator& ranks) {
    Rank rank(ranks);
    save_checkpoint(expected, Rank::state(1), rank.stage, rank.optimizer, rank.parallel);
    std::promise<void> go;
    CheckpointWriter<float> writer(rank.stage, rank.optimizer, rank.parallel,
                                   [waits = go.get_future().share()] { waits.wait(); });
    writer.start(run, Rank::state(1));
    for (int i = 0; i < 3; ++i) {
      rank.change();
      writer.poll();
      EXPECT_TRUE(writer.pending());
      EXPECT_FALSE(std::filesystem::exists(run + "/latest"));
    }
    go.set_value();
    writer.finish();
    EXPECT_FALSE(writer.pending());
    EXPECT_TRUE(bytes_of(run) == bytes_of(expected));
  });
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run))
    EXPECT_EQ(entry.path().string().find("partial"), std::string::npos) << entry.path();
}

TEST(CheckpointWriter, TheNextWaitsForTheLastAndPollFindsTheEnd) {
  const ScratchDirectory directory;
  const std::string run = directory.path("run");
  test::run_ranks(2, [&](comm::Communicator& ranks) {
    Rank rank(ranks);
    CheckpointWriter<float> writer(rank.stage, rank.optimizer, rank.parallel);
    for (std::int64_t step = 1; step <= 3; ++step) {
      writer.start(run, Rank::state(step));
      if (step > 1) {
        EXPECT_EQ(read_state(find_checkpoint(run)).step, step - 1);
      }
      rank.change();
    }
    while (writer.pending()) writer.poll();
    EXPECT_EQ(read_state(find_checkpoint(run)).step, 3);
  });
}

TEST(CheckpointWriter, AnErrorOfOneRanksThreadReachesAllAndTheNextIsWritten) {
  const ScratchDirectory directory;
  const std::string run = directory.path("run");
  int failed = 0;
  std::mutex mutex;
  test::run_ranks(2, [&](comm::Communicator& ranks) {
    Rank rank(ranks);
    bool fails = false;
    CheckpointWriter<float> writer(rank.stage, rank.optimizer, rank.parallel, [&] {
      if (fails) throw Error("the disk of rank 1 is full");
    });
    writer.start(run, Rank::state(1));
    writer.finish();
    fails = ranks.rank() == 1;
    writer.start(run, Rank::state(2));
    try {
      writer.finish();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "the disk of rank 1 is full");
      const std::lock_guard<std::mutex> lock(mutex);
      ++failed;
    }
    EXPECT_FALSE(writer.pending());
    EXPECT_EQ(read_state(find_checkpoint(run)).step, 1);  // the one before is whole
    fails = false;
    writer.start(run, Rank::state(3));
    writer.finish();
    EXPECT_EQ(read_state(find_checkpoint(run)).step, 3);
  });
  EXPECT_EQ(failed, 2);
}

// Destroyed before it was finished: nothing new to resume from, and nothing hangs.
TEST(CheckpointWriter, WhatWasNotFinishedIsNotResumedFrom) {
  const ScratchDirectory directory;
  const std::string run = directory.path("run");
  test::run_ranks(2, [&](comm::Communicator& ranks) {
    Rank rank(ranks);
    {
      CheckpointWriter<float> writer(rank.stage, rank.optimizer, rank.parallel);
      writer.start(run, Rank::state(1));
      EXPECT_EQ(writer.pending(), true);
    }
    EXPECT_THROW(static_cast<void>(find_checkpoint(run)), UsageError);
  });
}

TEST(RunTraining, SavesBesideTheTrainingWhatItSavesBetweenSteps) {
  const ScratchDirectory directory;
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 2, .heads = 2, .channels = 16});
  options.data = test::write_text_data(directory);
  options.batch = 4;
  options.steps = 9;
  options.save_every = 2;
  options.dp = 2;
  options.zero = 2;
  options.threads = 1;
  for (const bool async_save : {false, true}) {
    options.async_save = async_save;
    options.out = directory.path(async_save ? "async" : "between");
    test::run_ranks(2, [&](comm::Communicator& ranks) {
      const TrainPlan plan = make_plan(options, 2);
      const auto trainer = Trainer::create(plan, ranks);
      static_cast<void>(
          run_training(*trainer, plan, ranks, [](const StepMetrics&, std::optional<double>) {}));
    });
  }
  for (const char* step : {"/step-00000002", "/step-00000004", "/step-00000008", "/step-00000009"})
    EXPECT_TRUE(bytes_of(directory.path("async") + step) ==
                bytes_of(directory.path("between") + step));
  EXPECT_EQ(read_state(find_checkpoint(options.out)).step, 9);
}

}  // namespace
}  // namespace sinew::model
