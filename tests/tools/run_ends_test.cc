// How runs end when something fails on their way: one line, exit code 1, and nothing lost.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/tools/json_text.h"
#include "tests/tools/process.h"

namespace sinew::test {
namespace {

const std::string kSinew = SINEW_BINARY_DIR "/sinew";

std::string text_of(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  return text;
}

// Tables that are flushed row by row, too.
TEST(RunEnds, FullStandardOutputIsOneLineInEveryCommand) {
  const std::string launch = std::string(SINEW_SOURCE_DIR) + "/tools/launch.sh -n 2 ";
  for (const std::string& command :
       {kSinew + " explain --list", kSinew + " verify --world 2 --op barrier",
        kSinew + " simulate --world 2 --bytes 8",
        launch + kSinew + " coll --bytes 8 --budget-ms 0.1",
        launch + kSinew + " p2p --bytes 8 --budget-ms 0.1"}) {
    const Outcome outcome = run_process({"bash", "-c", command + " > /dev/full"}, 30000);
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_EQ(count_lines(outcome.err), 1) << command << outcome.err;
  }
}

// A limit on the size of files is an error like a full disk, not a signal.
TEST(RunEnds, BeyondTheLimitOfFileSizesIsOneLineAndLeavesNothing) {
  const TestFolder folder;
  const Outcome outcome = run_process(
      {"bash", "-c",
       "ulimit -f 1; exec " + kSinew + " verify --world 4 --json " + folder.path("rows")},
      30000);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("File too large"), std::string::npos) << outcome.err;
  EXPECT_EQ(folder.read("rows"), "");
}

TEST(RunEnds, ClosedStandardOutputIsAnErrorAndNotTheNextFile) {
  const TestFolder folder;
  const Outcome outcome = run_process(
      {"bash", "-c", "exec " + kSinew + " explain --list --json " + folder.path("list") + " >&-"},
      10000);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
  EXPECT_EQ(folder.read("list").find("operation "), std::string::npos) << folder.read("list");
}

TEST(RunEnds, MetricsThatCannotBeWrittenAreOneLineThatSaysWhy) {
  const TestFolder folder;
  const std::string text = folder.write("text.txt", std::string(600, 'a'));
  folder.write("run/nothing", "");
  std::filesystem::create_symlink("/dev/full", folder.path("run/metrics.jsonl"));
  const Outcome outcome = run_sinew("train --model byte-tiny --seq 16 --batch 1 --steps 1 --data " +
                                    text + " --out " + folder.path("run"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome.err;
}

TEST(RunEnds, FullRecordFileIsOneLine) {
  const Outcome outcome = run_sinew_ranks(2, "coll --bytes 8 --budget-ms 0.1 --json /dev/full");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
}

TEST(RunEnds, DivergedTrainingSaysSoAndWritesNoNan) {
  const TestFolder folder;
  const std::string data = folder.write("text.txt", text_of(100));
  const Outcome outcome =
      run_sinew_ranks(2,
                      "train --model byte-tiny --seq 16 --steps 4 --lr 1e30 --eval-windows 2 "
                      "--data " +
                          data + " --out " + folder.path("run"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("--lr"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out.find("-nan"), std::string::npos) << outcome.out;
  for (const nlohmann::json& step : json_lines(folder.read("run/metrics.jsonl")))
    EXPECT_TRUE(step.contains("loss"));
}

// A run that is asked for again when it is done leaves what it found.
TEST(RunEnds, NothingToTrainLeavesTheSummaryAndTheMetrics) {
  const TestFolder folder;
  const std::string data = folder.write("text.txt", text_of(100));
  const std::string arguments =
      "train --model byte-tiny --seq 16 --eval-windows 2 --steps 3 --data " + data + " --out " +
      folder.path("run");
  ASSERT_EQ(run_sinew(arguments).exit_code, 0);
  const std::string summary = folder.read("run/summary.json");
  const std::string metrics = folder.read("run/metrics.jsonl");
  for (const char* steps : {"3", "2"}) {
    const Outcome again =
        run_sinew(arguments + " --resume " + folder.path("run") + " --steps " + steps);
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_NE(again.out.find("nothing to train"), std::string::npos) << again.out;
    EXPECT_EQ(again.out.find("tokens/s"), std::string::npos) << again.out;
    EXPECT_EQ(folder.read("run/summary.json"), summary);
    EXPECT_EQ(folder.read("run/metrics.jsonl"), metrics);
  }
}

// Weights of a run, as another program may bring them, are validated without a step.
TEST(RunEnds, NoStepsAreAValidation) {
  const TestFolder folder;
  const std::string common = "train --model byte-tiny --seq 16 --eval-windows 2 --data " +
                             folder.write("text.txt", text_of(100));
  const Outcome trained = run_sinew(common + " --steps 3 --out " + folder.path("run"));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::size_t begin = trained.out.find("\nvalidation loss");
  ASSERT_NE(begin, std::string::npos) << trained.out;
  const std::string line = trained.out.substr(begin, trained.out.find('\n', begin + 1) - begin + 1);
  ASSERT_EQ(run_sinew("export --checkpoint " + folder.path("run") + " --to " +
                      folder.path("weights.safetensors"))
                .exit_code,
            0);
  for (const std::string& rest : {" --init " + folder.path("weights.safetensors") + " --steps 0",
                                  " --resume " + folder.path("run") + " --steps 3"}) {
    const Outcome outcome = run_sinew(common + rest);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(line + "\npredicted"), std::string::npos) << line << outcome.out;
  }
}

// One of each is written so.
TEST(RunEnds, CountsOfOneAreSingular) {
  const TestFolder folder;
  const Outcome outcome = run_sinew("train --model byte-tiny --seq 16 --batch 1 --steps 1 --data " +
                                    folder.write("text.txt", text_of(100)));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("with 1 microbatch of 1;"), std::string::npos) << outcome.out;
}

// The last step destroys the weights, and nothing but the validation can tell.
TEST(RunEnds, WeightsThatTheLastStepDestroyedAreNotPassedOverInSilence) {
  const TestFolder folder;
  const std::string data = folder.write("text.txt", text_of(100));
  const Outcome outcome =
      run_sinew("train --model byte-tiny --seq 16 --steps 1 --lr 1e30 --eval-windows 2 --data " +
                data + " --out " + folder.path("run"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("validation loss is not finite"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("validation loss nan"), std::string::npos) << outcome.out;
  EXPECT_TRUE(json_lines(folder.read("run/metrics.jsonl")).back()["validation_loss"].is_null());
}

// Rank 0 with the first arguments, rank 1 with the second.
Outcome run_two(const std::string& first, const std::string& second) {
  return run_process(
      {"bash", "-c", SINEW_SOURCE_DIR "/tools/mpirun.sh -n 1 " + first + " : -n 1 " + second},
      60000);
}

TEST(RunEnds, RanksThatWereGivenOtherOptionsOrDataAreRefused) {
  const TestFolder folder;
  const std::string train =
      kSinew + " train --model byte-tiny --seq 16 --steps 2 --eval-windows 2 ";
  const std::string one = "--data " + folder.write("one/text.txt", text_of(100));
  std::string changed = text_of(100);
  changed[4] = 'Q';
  const std::string other = "--data " + folder.write("other/text.txt", changed);
  const std::string copy = "--data " + folder.write("copy/text.txt", text_of(100));
  const std::string coll = kSinew + " coll --bytes 8 --budget-ms 0.1 ";
  const std::vector<std::vector<std::string>> refused = {
      {train + one, train + one + " --seed 5", "--seed"},
      {train + one, train + one + " --lr 0.5", "--lr"},
      {train + one + " --sequence-parallel", train + one, "--sequence-parallel"},
      {train + one, train + other, "other data"},
      {coll, coll + "--dtype f64", "--dtype"},
  };
  for (const std::vector<std::string>& run : refused) {
    const Outcome outcome = run_two(run[0], run[1]);
    EXPECT_EQ(outcome.exit_code, 2) << run[1] << outcome.err;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_NE(outcome.err.find("rank 1"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(run[2]), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run_two(train + one, train + copy).exit_code, 0);  // another path to the same text
}

TEST(RunEnds, ARankThatNeverComesToMpiEndsTheOthersWithOneLine) {
  // One that leaves after the others came: Open MPI ends those before their deadline.
  for (const std::string& other :
       {std::string("true"), kSinew + " explain --list", std::string("sleep 1.5")}) {
    const Outcome outcome = run_two(kSinew + " coll --bytes 8 --timeout 2", other);
    EXPECT_FALSE(outcome.timed_out) << other;
    EXPECT_EQ(outcome.exit_code, 1) << other;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_NE(outcome.err.find("came to MPI_Init"), std::string::npos) << outcome.err;
  }
}

TEST(RunEnds, SecondRunInTheSameFolderIsRefusedAndTheFirstGoesOn) {
  const TestFolder folder;
  const std::string train = kSinew + " train --model byte-tiny --seq 16 --eval-windows 2 --data " +
                            folder.write("text.txt", text_of(100)) + " --out " + folder.path("run");
  // The second starts when the first has written its first step, and ends it afterwards.
  const Outcome outcome = run_process(
      {"bash", "-c",
       train +
           " --steps 100000 >/dev/null & first=$!; "
           "until [ -s " +
           folder.path("run/metrics.jsonl") + " ]; do :; done; " + train +
           " --steps 1; code=$?; kill -0 $first && kill $first; wait $first; exit $code"},
      60000);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("another run"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

// Checkpoints of a branch that was left would look as if they were of the run that goes on.
TEST(RunEnds, GoingOnBeforeLaterCheckpointsNeedsAnotherFolder) {
  const TestFolder folder;
  const std::string train =
      "train --model byte-tiny --seq 16 --eval-windows 2 --save-every 1 "
      "--data " +
      folder.write("text.txt", text_of(100)) + " --out ";
  const std::string run = folder.path("run");
  ASSERT_EQ(run_sinew(train + run + " --steps 3").exit_code, 0);
  const std::string before = folder.read("run/metrics.jsonl");
  const std::string first = " --steps 4 --resume " + run + "/step-00000001";
  const Outcome refused = run_sinew(train + run + first);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(count_lines(refused.err), 1) << refused.err;
  EXPECT_NE(refused.err.find("up to step 3"), std::string::npos) << refused.err;
  EXPECT_EQ(folder.read("run/metrics.jsonl"), before);
  EXPECT_EQ(run_sinew(train + folder.path("other") + first).exit_code, 0);
  EXPECT_EQ(run_sinew(train + run + " --steps 4 --resume " + run + "/step-00000003").exit_code, 0);
}

TEST(RunEnds, CheckpointsOfAnEarlierRunAreKept) {
  const TestFolder folder;
  const std::string train = "train --model byte-tiny --seq 16 --eval-windows 2 --data " +
                            folder.write("text.txt", text_of(100)) + " --out " + folder.path("run");
  ASSERT_EQ(run_sinew(train + " --steps 2").exit_code, 0);
  const std::string before = folder.read("run/metrics.jsonl");
  EXPECT_EQ(run_sinew(train + " --steps 1").exit_code, 2);
  EXPECT_EQ(folder.read("run/metrics.jsonl"), before);
  EXPECT_EQ(run_sinew(train + " --steps 3 --resume " + folder.path("run")).exit_code, 0);
  EXPECT_EQ(json_lines(folder.read("run/metrics.jsonl")).size(), 3U);
}

}  // namespace
}  // namespace sinew::test
