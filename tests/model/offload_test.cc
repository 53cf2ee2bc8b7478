// Optimizer state in files: the bits of a run without, nothing left behind, and a folder that is
// not there is said on every rank.
#include <gtest/gtest.h>

#include <filesystem>

#include "model/layouts.h"
#include "model/trainer.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::ScratchDirectory;

TEST(Offload, StateInFilesTrainsTheSameBitsAndLeavesNothingBehind) {
  const ScratchDirectory directory;
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 2, .heads = 2, .channels = 16});
  options.batch = 4;
  options.dp = 2;
  options.threads = 1;
  std::filesystem::create_directories(directory.path("state"));
  for (int zero = 0; zero <= 3; ++zero) {
    for (const auto& [dtype, rounding] : std::vector<std::pair<std::string, std::string>>{
             {"f32", "nearest"}, {"f64", "nearest"}, {"bf16", "nearest"}, {"bf16", "stochastic"}}) {
      options.zero = zero;
      options.dtype = dtype;
      options.rounding = rounding;
      options.offload = "";
      const LayoutRun memory = test::run_on_threads(options, 2, 3);
      options.offload = directory.path("state");
      const LayoutRun files = test::run_on_threads(options, 2, 3);
      EXPECT_TRUE(compare_runs(memory, files).bits_equal) << dtype << " zero " << zero;
      EXPECT_TRUE(std::filesystem::is_empty(options.offload));
    }
  }
}

// Checkpoints hold it as ever, and memory is counted as ever.
TEST(Offload, CheckpointsAndPredictionsAreThoseOfMemory) {
  const ScratchDirectory directory;
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 2, .heads = 2, .channels = 16});
  options.data = test::write_text_data(directory);
  options.batch = 4;
  options.threads = 1;
  std::string saved[2];
  for (const bool offloads : {false, true}) {
    options.offload = offloads ? directory.path() : "";
    const std::string run = directory.path(offloads ? "files" : "memory");
    test::run_ranks(1, [&](comm::Communicator& ranks) {
      const auto trainer = Trainer::create(make_plan(options, 1), ranks);
      static_cast<void>(trainer->step());
      trainer->save(run);
      int rows = 0;
      for (const Compared& row : trainer->summary().compared) {
        if (!row.name.starts_with("optimizer state")) continue;
        ++rows;
        EXPECT_EQ(row.name.ends_with("in files"), offloads);
        EXPECT_EQ(row.measured, row.predicted);
      }
      EXPECT_EQ(rows, 1);
    });
    saved[offloads ? 1 : 0] = test::read_file(run + "/step-00000001/optimizer.safetensors");
  }
  EXPECT_FALSE(saved[0].empty());
  EXPECT_TRUE(saved[0] == saved[1]);
}

TEST(Offload, AFolderThatIsNotThereIsOneLineOnEveryRank) {
  const ScratchDirectory directory;
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 2, .heads = 2, .channels = 16});
  options.threads = 1;
  options.offload = directory.path("no/such");
  const std::string message = test::usage_error_of([&] {
    test::run_ranks(2, [&](comm::Communicator& ranks) {
      static_cast<void>(Trainer::create(make_plan(options, 2), ranks));
    });
  });
  EXPECT_NE(message.find("no/such\": there is no such folder"), std::string::npos) << message;
}

}  // namespace
}  // namespace sinew::model
