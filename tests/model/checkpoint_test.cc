// Checkpoints: resume in the same layout is bit-equal, any layout opens them, damage is one line.
#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "model/layouts.h"
#include "model/safetensors.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

namespace fs = std::filesystem;
using test::ScratchDirectory;
using test::Split;

TrainOptions base_options(const ScratchDirectory& directory) {
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 2, .heads = 2, .channels = 16});
  options.data = test::write_text_data(directory);
  options.batch = 4;
  options.steps = 6;
  options.warmup = 2;
  options.dropout = 0.1;
  options.threads = 1;
  return options;
}

struct Result {
  std::vector<double> losses;
  Trainer::Tensors weights;
};

// Trains to `until` steps, then saves to `directory` unless it is empty.
Result train(const TrainOptions& options, int world, std::int64_t until,
             const std::string& directory) {
  Result result;
  std::mutex mutex;
  test::run_ranks(world, [&](comm::Communicator& ranks) {
    const auto trainer = Trainer::create(make_plan(options, world), ranks);
    Result own;
    while (trainer->steps_done() < until) own.losses.push_back(trainer->step().loss);
    own.weights = trainer->gather_weights();
    if (!directory.empty()) trainer->save(directory);
    const std::lock_guard<std::mutex> lock(mutex);
    if (ranks.rank() == 0) result = own;
  });
  return result;
}

TEST(Checkpoint, ResumeIsBitEqualInTheSameLayoutAndCloseInEveryOther) {
  const ScratchDirectory directory;
  const std::vector<Split> splits = {{1, 1, 1, 0}, {2, 1, 1, 0}, {1, 2, 1, 0},   {1, 1, 2, 1},
                                     {2, 1, 2, 3}, {1, 2, 2, 2}, {1, 1, 4, 3, 2}};
  for (std::size_t i = 0; i < splits.size(); ++i) {
    TrainOptions options = base_options(directory);
    splits[i].apply(options);
    options.dtype = i % 2 == 1 ? "bf16" : "f32";
    if (i % 4 == 3) options.rounding = "stochastic";
    const std::string saved = directory.path("run" + std::to_string(i));
    const Result whole = train(options, splits[i].world(), 6, "");
    static_cast<void>(train(options, splits[i].world(), 3, saved));
    options.resume = saved;
    const Result same = train(options, splits[i].world(), 6, "");
    ASSERT_EQ(same.losses.size(), 3U);
    for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(same.losses[k], whole.losses[3 + k]);
    EXPECT_EQ(same.weights, whole.weights) << "layout " << i;
    for (const Split& other : splits) {
      other.apply(options);
      const Result resumed = train(options, other.world(), 6, "");
      for (std::size_t k = 0; k < 3; ++k)
        EXPECT_NEAR(resumed.losses[k], whole.losses[3 + k],
                    layout_bound(options.dtype) * whole.losses[3 + k]);
    }
  }
}

// Saved in one layout, opened in another and saved there again: the same weights and moments to
// the last bit, whatever the cuts.
TEST(Checkpoint, EveryLayoutOpensEveryOther) {
  const ScratchDirectory directory;
  const std::vector<Split> splits = {{1, 1, 1, 0}, {2, 1, 1, 0}, {1, 2, 1, 0},
                                     {1, 1, 3, 1}, {1, 1, 3, 2}, {1, 1, 5, 3},
                                     {2, 2, 2, 2}, {2, 2, 2, 3}, {1, 1, 6, 3, 3}};
  const auto files = [](const std::string& saved) {
    const CheckpointPaths paths = find_checkpoint(saved);
    return test::read_file(paths.model) + test::read_file(paths.optimizer) +
           test::read_file(paths.state);
  };
  for (std::size_t i = 0; i < splits.size(); ++i) {
    TrainOptions options = base_options(directory);
    options.batch = 30;
    options.dtype = i % 2 == 0 ? "bf16" : "f32";
    if (i % 4 == 2) options.rounding = "stochastic";
    if (splits[i].world() == 8) options.batch = 4;
    splits[i].apply(options);
    const std::string saved = directory.path("from" + std::to_string(i));
    static_cast<void>(train(options, splits[i].world(), 2, saved));
    for (const std::size_t j : {(i + 1) % splits.size(), (i + 5) % splits.size()}) {
      TrainOptions other = options;
      splits[j].apply(other);
      other.batch = splits[j].dp * 2;
      other.resume = saved;
      const std::string again = directory.path("again");
      static_cast<void>(train(other, splits[j].world(), 2, again));
      EXPECT_TRUE(files(again) == files(saved)) << i << " opened by " << j;
    }
  }
}

// A file that all layouts write alike: the bytes do not say who wrote them.
TEST(Checkpoint, LayoutsThatTrainTheSameBitsWriteTheSameFiles) {
  const ScratchDirectory directory;
  std::vector<std::string> files;
  for (const Split& split : {Split{1, 1, 1, 0}, Split{1, 2, 1, 0}}) {
    TrainOptions options = base_options(directory);
    split.apply(options);
    options.microbatches = 2;
    const std::string saved = directory.path("pp" + std::to_string(split.pp));
    static_cast<void>(train(options, split.world(), 2, saved));
    const CheckpointPaths paths = find_checkpoint(saved);
    files.push_back(test::read_file(paths.model) + test::read_file(paths.optimizer) +
                    test::read_file(paths.state));
  }
  EXPECT_EQ(files[0], files[1]);
}

TEST(Checkpoint, TheNewestSavedIsResumedFromAndUnfinishedOnesAreIgnored) {
  const ScratchDirectory directory;
  const TrainOptions options = base_options(directory);
  const std::string run = directory.path("run");
  static_cast<void>(train(options, 1, 5, run));
  // What a killed save leaves behind.
  fs::create_directories(run + "/step-00000099.partial");
  EXPECT_EQ(read_state(find_checkpoint(run)).step, 5);
  // A new run into the same directory: its checkpoint is the newest although its step is lower.
  static_cast<void>(train(options, 1, 2, run));
  EXPECT_EQ(read_state(find_checkpoint(run)).step, 2);
  EXPECT_EQ(read_state(find_checkpoint(run + "/step-00000005")).step, 5);
  // One that names nothing is damage, and not silently another checkpoint.
  for (const std::string text : {"", "step-", "step-x", "../run", "step-00000002 "}) {
    std::ofstream(run + "/latest", std::ios::binary) << text;
    const std::string message =
        test::usage_error_of([&] { static_cast<void>(find_checkpoint(run)); });
    EXPECT_EQ(message.find("is no name of a checkpoint, step-N") == std::string::npos,
              text == "step-00000002 ")
        << text;
  }
  std::ofstream(run + "/latest", std::ios::binary) << "step-00000077";
  EXPECT_NE(test::usage_error_of([&] { static_cast<void>(find_checkpoint(run)); }).find("missing"),
            std::string::npos);
  // Without `latest`, the highest.
  fs::remove(run + "/latest");
  EXPECT_EQ(read_state(find_checkpoint(run)).step, 5);
}

TEST(Checkpoint, SavingTheSameStepAgainReplacesItAndLeavesNothingBehind) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  const std::string run = directory.path("run");
  static_cast<void>(train(options, 1, 2, run));
  const std::string before = test::read_file(find_checkpoint(run).model);
  options.seed = 5;
  static_cast<void>(train(options, 2, 2, run));
  EXPECT_NE(test::read_file(find_checkpoint(run).model), before);
  EXPECT_EQ(read_state(find_checkpoint(run)).seed, 5U);
  for (const auto& entry : fs::recursive_directory_iterator(run))
    EXPECT_EQ(entry.path().string().find("partial"), std::string::npos) << entry.path();
}

// The last so many of a run, whichever way they are written; a later run's, a folder that holds
// more than a checkpoint's files and a link stay.
TEST(Checkpoint, OnlyTheLastAreKeptWhereThatIsAskedFor) {
  for (const bool async_save : {false, true}) {
    const ScratchDirectory directory;
    TrainOptions options = base_options(directory);
    const std::string run = directory.path("run");
    static_cast<void>(train(options, 1, 9, run));
    fs::create_directories(run + "/step-00000001");
    std::ofstream(run + "/step-00000001/notes") << "mine";
    fs::create_directory_symlink(run + "/step-00000009", run + "/step-00000002");
    options.async_save = async_save;
    options.keep_last = 2;
    test::run_ranks(2, [&](comm::Communicator& ranks) {
      const auto trainer = Trainer::create(make_plan(options, 2), ranks);
      while (trainer->steps_done() < 7) {
        static_cast<void>(trainer->step());
        if (trainer->steps_done() > 2) trainer->save(run);
      }
      trainer->finish_save();
    });
    std::vector<std::string> left;
    for (const auto& entry : fs::directory_iterator(run)) left.push_back(entry.path().filename());
    std::sort(left.begin(), left.end());
    EXPECT_EQ(left, (std::vector<std::string>{"latest", "step-00000001", "step-00000002",
                                              "step-00000006", "step-00000007", "step-00000009"}));
    EXPECT_EQ(read_state(find_checkpoint(run)).step, 7);
    EXPECT_EQ(read_state(find_checkpoint(run + "/step-00000006")).step, 6);
  }
}

TEST(Checkpoint, WhereNothingCanBeWrittenEveryRankSaysSo) {
  const ScratchDirectory directory;
  const TrainOptions options = base_options(directory);
  const std::string file = directory.write("file", "");
  int failed = 0;
  std::mutex mutex;
  test::run_ranks(2, [&](comm::Communicator& ranks) {
    const auto trainer = Trainer::create(make_plan(options, 2), ranks);
    try {
      trainer->save(file + "/below");
    } catch (const Error&) {
      const std::lock_guard<std::mutex> lock(mutex);
      ++failed;
    }
    static_cast<void>(trainer->step());  // the run can go on
  });
  EXPECT_EQ(failed, 2);
}

TEST(Checkpoint, DamageIsOneLineOnEveryRank) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  const std::string run = directory.path("run");
  EXPECT_THROW(static_cast<void>(find_checkpoint(run)), UsageError);
  static_cast<void>(train(options, 1, 1, run));
  const CheckpointPaths paths = find_checkpoint(run);
  options.resume = run;

  const auto refusal = [&] {
    return test::usage_error_of([&] { static_cast<void>(train(options, 2, 2, "")); });
  };
  EXPECT_EQ(refusal(), "");
  const auto expect_refused = [&](const std::string& path, const std::string& content,
                                  const std::string& part) {
    const std::string good = test::read_file(path);
    std::ofstream(path, std::ios::binary) << content;
    const std::string message = refusal();
    EXPECT_NE(message.find(part), std::string::npos) << path << ": '" << message << "'";
    std::ofstream(path, std::ios::binary) << good;
  };
  expect_refused(paths.model, "", "shorter than");
  expect_refused(paths.model, std::string(8, '\xff') + "{}", "header of");
  expect_refused(paths.model, std::string("\x02\0\0\0\0\0\0\0{}", 10), "no tensor");
  expect_refused(paths.state, "{\"step\": -1}", "damaged");
  expect_refused(paths.state, "not json", "damaged");
  for (const std::string& path : {paths.model, paths.optimizer}) {
    const std::string good = test::read_file(path);
    expect_refused(path, good.substr(0, good.size() - 1), "data");
    // One bit anywhere in the data.
    for (const std::size_t from_end : {1U, 777U, 5000U}) {
      std::string flipped = good;
      flipped[flipped.size() - from_end] ^= 4;
      expect_refused(path, flipped, "fingerprint");
    }
  }
  const std::string good = test::read_file(paths.state);
  for (std::size_t i = 0; i < good.size(); i += i < 64 ? 1 : 13) {
    std::string flipped = good;
    flipped[i] ^= 4;
    std::ofstream(paths.state, std::ios::binary) << flipped;
    const std::string message = test::usage_error_of([&] { static_cast<void>(read_state(paths)); });
    EXPECT_NE(message.find(paths.state), std::string::npos) << i << ": '" << message << "'";
  }
  std::ofstream(paths.state, std::ios::binary) << good;
  const std::string other = directory.path("step-00000009");
  fs::copy(fs::path(paths.state).parent_path(), other);
  const std::string message =
      test::usage_error_of([&] { static_cast<void>(read_state(find_checkpoint(other))); });
  EXPECT_NE(message.find("of step 1, its folder of step 9"), std::string::npos) << message;

  fs::remove(paths.optimizer);
  EXPECT_NE(refusal().find("is missing"), std::string::npos);
}

TEST(Checkpoint, AnotherModelOrSeedIsRefused) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  const std::string run = directory.path("run");
  static_cast<void>(train(options, 1, 1, run));
  options.resume = run;
  const auto refusal = [&] {
    return test::usage_error_of([&] { static_cast<void>(train(options, 1, 2, "")); });
  };
  options.seed = 8;
  EXPECT_NE(refusal().find("seed 1234, not 8"), std::string::npos);
  options.seed = 1234;
  options.model = test::write_model(directory, {.layers = 3, .heads = 2, .channels = 16});
  EXPECT_NE(refusal().find("holds model"), std::string::npos);
}

// The layout, the batch and the rates may change; what comes next in the data may not.
TEST(Checkpoint, OtherDataOrAnotherSequenceLengthIsRefused) {
  const ScratchDirectory directory;
  const TrainOptions options = base_options(directory);
  const std::string run = directory.path("run");
  static_cast<void>(train(options, 1, 1, run));
  const auto refusal = [&](auto&& change, int world) {
    TrainOptions resumed = options;
    resumed.resume = run;
    change(resumed);
    return test::usage_error_of([&] { static_cast<void>(train(resumed, world, 2, "")); });
  };
  const auto expect = [&](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("or --init"), std::string::npos) << message;
  };
  expect(refusal([](TrainOptions& o) { o.seq = 8; }, 1), "--seq 8: checkpoint");
  expect(refusal([](TrainOptions& o) { o.validation_fraction = 0.5; }, 1), "--validation-fraction");
  std::string text = test::read_file(options.data);
  const std::string longer = directory.write("longer.txt", text + "x");
  expect(refusal([&](TrainOptions& o) { o.data = longer; }, 2), "trained on other data");
  text[3] ^= 1;
  const std::string changed = directory.write("changed.txt", text);
  expect(refusal([&](TrainOptions& o) { o.data = changed; }, 1), "trained on other data");
  EXPECT_EQ(refusal(
                [&](TrainOptions& o) {
                  text[3] ^= 1;
                  o.data = directory.write("moved.txt", text);
                  o.batch = 8;
                  o.lr = 1e-4;
                  o.tp = 2;
                },
                2),
            "");
}

// A killed run leaves what it had not finished; the next that writes there removes that, and
// nothing that is somebody else's.
TEST(Checkpoint, TheNextRunRemovesWhatAKilledOneLeftUnfinished) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.steps = 1;
  options.warmup = 0;
  options.out = directory.path("run");
  const auto put = [&](const std::string& name) {
    fs::create_directories(fs::path(directory.path("run/" + name)).parent_path());
    return directory.write("run/" + name, "x");
  };
  const std::vector<std::string> ours = {put("step-00000099.partial/model.safetensors"),
                                         put("step-00000099.partial/state.json"),
                                         put("latest.partial"), put("metrics.jsonl.partial")};
  const std::vector<std::string> theirs = {put("step-00000098.partial/notes"),
                                           put("step-x.partial/model.safetensors"),
                                           put("notes.partial"), put("step-7/partial")};
  test::run_ranks(2, [&](comm::Communicator& ranks) {
    const TrainPlan plan = make_plan(options, 2);
    const auto trainer = Trainer::create(plan, ranks);
    static_cast<void>(
        run_training(*trainer, plan, ranks, [](const StepMetrics&, std::optional<double>) {}));
  });
  for (const std::string& path : ours) EXPECT_FALSE(fs::exists(path)) << path;
  EXPECT_FALSE(fs::exists(options.out + "/step-00000099.partial"));
  for (const std::string& path : theirs) EXPECT_TRUE(fs::exists(path)) << path;
  EXPECT_EQ(read_state(find_checkpoint(options.out)).step, 1);
}

TEST(State, SurvivesBeingWrittenAndRead) {
  TrainingState state;
  state.step = 7;
  state.optimizer_steps = 6;
  state.sequences = std::int64_t{1} << 40;
  state.seed = ~std::uint64_t{0};
  state.config = load_config("byte-tiny");
  state.dtype = "f32";
  EXPECT_EQ(parse_state(print_state(state), "here"), state);
  state.data = {32, 17, std::int64_t{1} << 41, ~std::uint64_t{0} - 1};
  state.fingerprints = {{"a", 0}, {"b", ~std::uint64_t{0}}};
  EXPECT_EQ(parse_state(print_state(state), "here"), state);
}

// Weights of other programs: Hugging Face's optional prefix, and 16-bit types.
TEST(LoadWeights, AcceptsThePrefixAndConvertsAndNamesWhatIsMissing) {
  const ScratchDirectory directory;
  const Config config{"test", 1, 1, 4, 3, 2};
  const auto write = [&](const std::string& prefix, DType dtype, const std::string& left_out) {
    std::vector<NamedTensor> tensors;
    std::string data;
    for (const Parameter& p : whole_parameters(config)) {
      if (p.name == left_out) continue;
      tensors.push_back({prefix + p.name, {.dtype = dtype, .shape = p.shape}});
      for (std::int64_t i = 0; i < p.slice.logical_count(); ++i) {
        const auto value = static_cast<float>(i % 7) * 0.5F;  // exact in every type
        const bf16 narrow = to_bf16(value);
        data.append(dtype == DType::kBf16 ? reinterpret_cast<const char*>(&narrow)
                                          : reinterpret_cast<const char*>(&value),
                    size_of(dtype));
      }
    }
    return directory.write("weights.safetensors", make_safetensors_header(tensors, {}) + data);
  };
  Memory memory;
  Stage<double> stage(config, StageParts::one(config, {0, 1, true, true}), {}, nullptr, {1, 1}, {},
                      {}, memory);
  for (const char* prefix : {"", "transformer."}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      std::fill_n(stage.weights(), stage.count(), -1.0);
      load_weights(write(prefix, dtype, ""), config, stage);
      for (const Parameter& p : stage.parameters()) {
        for (std::int64_t i = 0; i < p.slice.local_count(); ++i)
          ASSERT_EQ(stage.weights()[p.offset + i], static_cast<double>(i % 7) * 0.5);
      }
    }
  }
  const std::string missing = test::usage_error_of(
      [&] { load_weights(write("", DType::kF32, "h.0.ln_2.bias"), config, stage); });
  EXPECT_NE(missing.find("no tensor 'h.0.ln_2.bias'"), std::string::npos);
  const Config wider{"test", 1, 1, 8, 3, 2};
  Stage<double> other(wider, StageParts::one(wider, {0, 1, true, true}), {}, nullptr, {1, 1}, {},
                      {}, memory);
  const std::string shape =
      test::usage_error_of([&] { load_weights(write("", DType::kF32, ""), wider, other); });
  EXPECT_NE(shape.find("has shape [3, 4]; the model needs [3, 8]"), std::string::npos);
}

}  // namespace
}  // namespace sinew::model
