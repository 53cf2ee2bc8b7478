// Sampling: the decoder computes what training's forward computes; draws follow their distribution.
#include "model/sample.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/checkpoint.h"
#include "model/decoder.h"
#include "model/initialize.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::ScratchDirectory;

TEST(Decoder, LogitsOfEveryPositionEqualTheForwardPass) {
  const Config config{"test", 3, 4, 24, 37, 9};
  Memory memory;
  Stage<double> stage(config, StageParts::one(config, {0, 3, true, true}), {}, nullptr, {1, 9}, {},
                      {}, memory);
  initialize_weights(4, stage);
  for (std::int64_t i = 0; i < stage.count(); ++i) stage.weights()[i] *= 10;
  const std::vector<std::int32_t> tokens = {3, 36, 0, 7, 7, 12, 30, 1, 9};
  const std::vector<std::int32_t> none(9, -1);
  static_cast<void>(stage.forward(stage.open(0), {tokens.data(), none.data()}, 0,
                                  Stage<double>::Mode::kEvaluate));
  Decoder<double> decoder(config, stage, {});
  for (int round = 0; round < 2; ++round) {  // the second after a clear()
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const double* logits = decoder.feed(tokens[t]);
      for (std::int64_t v = 0; v < config.vocabulary; ++v)
        EXPECT_NEAR(logits[v], stage.logits()[static_cast<std::int64_t>(t) * config.vocabulary + v],
                    1e-11);
    }
    EXPECT_EQ(decoder.length(), 9);
    decoder.clear();
  }
}

// The file of moments may be damaged or gone. Damage in the weights is said.
TEST(Sample, NeedsWeightsAndStateAlone) {
  const ScratchDirectory directory;
  TrainOptions train;
  train.model = "byte-tiny";
  train.data = test::write_text_data(directory);
  train.threads = 1;
  const std::string run = directory.path("run");
  test::run_ranks(1, [&](comm::Communicator& ranks) {
    Trainer::create(make_plan(train, 1), ranks)->save(run);
  });
  const auto tokens = [&] {
    std::vector<std::int32_t> sampled;
    sample(open_checkpoint(run, CheckpointUse::kWeights), {.prompt = {65}, .tokens = 8}, {},
           [&](std::int32_t token) { sampled.push_back(token); });
    return sampled;
  };
  const std::vector<std::int32_t> before = tokens();
  EXPECT_EQ(before.size(), 8U);
  const CheckpointPaths paths = find_checkpoint(run);
  std::ofstream(paths.optimizer, std::ios::binary) << "nothing";
  EXPECT_EQ(tokens(), before);
  std::filesystem::remove(paths.optimizer);
  EXPECT_EQ(tokens(), before);
  EXPECT_NE(test::usage_error_of([&] {
              static_cast<void>(find_checkpoint(run));  // to resume from
            }).find("optimizer.safetensors' is missing"),
            std::string::npos);
  std::string damaged = test::read_file(paths.model);
  damaged[damaged.size() - 5] ^= 2;
  std::ofstream(paths.model, std::ios::binary) << damaged;
  EXPECT_NE(test::usage_error_of([&] { static_cast<void>(tokens()); }).find("fingerprint"),
            std::string::npos);
}

TEST(Pick, TemperatureZeroAndTopOneTakeTheFirstLargest) {
  const float logits[] = {1.0F, 5.0F, 5.0F, -2.0F};
  for (const double uniform : {0.0, 0.3, 0.999}) {
    EXPECT_EQ(pick(logits, 4, 0, 0, uniform), 1);
    EXPECT_EQ(pick(logits, 4, 1, 1, uniform), 1);
  }
}

TEST(Pick, DrawsAreInProportionToTheSoftmaxAmongTheTopK) {
  const float logits[] = {std::log(1.0F), std::log(2.0F), std::log(5.0F), std::log(2.0F)};
  constexpr int kDraws = 10000;
  const auto shares = [&](double temperature, std::int64_t top_k) {
    std::vector<double> share(4, 0.0);
    for (int i = 0; i < kDraws; ++i)
      share[static_cast<std::size_t>(pick(logits, 4, temperature, top_k, (i + 0.5) / kDraws))] +=
          1.0 / kDraws;
    return share;
  };
  const std::vector<double> all = shares(1, 0);
  EXPECT_NEAR(all[0], 0.1, 1e-3);
  EXPECT_NEAR(all[1], 0.2, 1e-3);
  EXPECT_NEAR(all[2], 0.5, 1e-3);
  const std::vector<double> two = shares(1, 2);  // of the equal second ones the lower token stays
  EXPECT_NEAR(two[2], 5.0 / 7, 1e-3);
  EXPECT_NEAR(two[1], 2.0 / 7, 1e-3);
  const std::vector<double> hot = shares(0.5, 0);
  EXPECT_NEAR(hot[2], 25.0 / 34, 1e-3);
}

// Trains for a moment, so that there is a checkpoint.
Checkpoint make_checkpoint(const ScratchDirectory& directory, std::int64_t steps) {
  TrainOptions options;
  options.model = test::write_model(directory, {.max_time = 8});
  options.data = test::write_text_data(directory);
  options.steps = steps;
  options.threads = 1;
  const std::string out = directory.path("run");
  test::run_ranks(1, [&](comm::Communicator& ranks) {
    const auto trainer = Trainer::create(make_plan(options, 1), ranks);
    while (trainer->steps_done() < steps) static_cast<void>(trainer->step());
    trainer->save(out);
  });
  return open_checkpoint(out, CheckpointUse::kWeights);
}

std::vector<std::int32_t> sample_all(const Checkpoint& checkpoint, const SampleOptions& options) {
  std::vector<std::int32_t> tokens;
  sample(checkpoint, options, {}, [&](std::int32_t token) { tokens.push_back(token); });
  return tokens;
}

TEST(Sample, IsRepeatableDependsOnTheSeedAndSlidesPastTheContext) {
  const ScratchDirectory directory;
  const Checkpoint checkpoint = make_checkpoint(directory, 2);
  SampleOptions options;
  options.prompt = {'l', 'i', 'n', 'e', ' ', '1', '2', '\n', 'l', 'i'};  // longer than the context
  options.tokens = 40;
  const std::vector<std::int32_t> tokens = sample_all(checkpoint, options);
  ASSERT_EQ(tokens.size(), 40U);
  for (const std::int32_t token : tokens) EXPECT_TRUE(token >= 0 && token < 256);
  EXPECT_EQ(sample_all(checkpoint, options), tokens);
  options.seed = 2;
  EXPECT_NE(sample_all(checkpoint, options), tokens);
  options.temperature = 0;
  const std::vector<std::int32_t> greedy = sample_all(checkpoint, options);
  options.seed = 3;
  EXPECT_EQ(sample_all(checkpoint, options), greedy);
}

TEST(Sample, BadOptionsAreOneLineWithTheLegalValues) {
  const ScratchDirectory directory;
  const Checkpoint checkpoint = make_checkpoint(directory, 1);
  SampleOptions good;
  good.prompt = {1};
  const auto refusal = [&](const std::function<void(SampleOptions&)>& change) {
    SampleOptions options = good;
    change(options);
    return test::usage_error_of([&] { static_cast<void>(sample_all(checkpoint, options)); });
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_NE(refusal([](auto& o) { o.prompt = {}; }).find("at least one"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.prompt = {256}; }).find("0 to 255"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.temperature = -1; }).find("0 and more"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.temperature = NAN; }).find("0 and more"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.top_k = -1; }).find("1 and more"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.tokens = -1; }).find("0 and more"), std::string::npos);
}

}  // namespace
}  // namespace sinew::model
