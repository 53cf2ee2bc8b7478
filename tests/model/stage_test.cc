// The whole model on one rank: gradients against finite differences, positions without loss,
// memory.
#include "model/stage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "model/initialize.h"
#include "sched/base/philox.h"

namespace sinew::model {
namespace {

using Mode = Stage<double>::Mode;
using Weights = Stage<double>::Weights;

struct Case {
  Config config;
  BatchShape batch;
};

std::vector<Case> cases() {
  return {
      {{"one", 1, 1, 4, 5, 3}, {1, 1}},     // a single position: attention sees itself only
      {{"heads", 2, 4, 8, 13, 9}, {2, 9}},  // heads of two channels
      {{"wide", 1, 1, 16, 3, 20}, {3, 7}},  // shorter than the model's longest sequence
      {{"deep", 4, 2, 12, 31, 6}, {1, 6}},
  };
}

struct Sequences {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  [[nodiscard]] Microbatch view() const { return {tokens.data(), targets.data()}; }
};

Sequences sequences(const Case& c) {
  const Philox random(5, 1);
  Sequences s;
  for (std::int64_t i = 0; i < c.batch.batch * c.batch.time; ++i) {
    const auto words = random.words(static_cast<std::uint64_t>(i));
    const auto vocabulary = static_cast<std::uint32_t>(c.config.vocabulary);
    s.tokens.push_back(static_cast<std::int32_t>(words[0] % vocabulary));
    s.targets.push_back(i % 5 == 3 ? -1 : static_cast<std::int32_t>(words[1] % vocabulary));
  }
  return s;
}

Stage<double> make_stage(const Case& c, Memory& memory) {
  Stage<double> stage(c.config, StageParts::one(c.config, {0, c.config.layers, true, true}), {},
                      nullptr, c.batch, {}, {}, memory);
  CHECK_EQ(stage.open(0), 0);
  initialize_weights(11, stage);
  // Larger than the initial deviation, and biases that matter.
  const Philox random(12, 2);
  for (std::int64_t i = 0; i < stage.count(); ++i)
    stage.weights()[i] += 0.2 * static_cast<double>(random.normal(static_cast<std::uint64_t>(i)));
  return stage;
}

// The derivative along a random direction, twice: from the gradient, and from two losses.
TEST(Stage, GradientsAgreeWithFiniteDifferences) {
  for (const Case& c : cases()) {
    Memory memory;
    Stage<double> stage = make_stage(c, memory);
    const Sequences s = sequences(c);
    stage.zero_gradients();
    static_cast<void>(stage.forward(0, s.view(), 1, Mode::kTrain));
    stage.backward(0, s.view(), Weights::kNow);
    stage.finish_gradients(nullptr);

    const std::vector<double> weights(stage.weights(), stage.weights() + stage.count());
    for (std::uint32_t direction = 0; direction < 6; ++direction) {
      const Philox random(13, direction);
      double slope = 0;
      std::vector<double> d(weights.size());
      for (std::size_t i = 0; i < d.size(); ++i) {
        d[i] = static_cast<double>(random.normal(i));
        slope += d[i] * stage.gradients()[i];
      }
      // Central differences err by h^2/6 f''' and u f/h: near h = 1e-5 both are about 1e-9 of f.
      const double h = 1e-5;
      const auto loss_at = [&](double step) {
        for (std::size_t i = 0; i < d.size(); ++i) stage.weights()[i] = weights[i] + step * d[i];
        return stage.forward(0, s.view(), 1, Mode::kEvaluate);
      };
      const double measured = (loss_at(h) - loss_at(-h)) / (2 * h);
      loss_at(0);
      EXPECT_NEAR(measured, slope, 1e-6 * (std::abs(slope) + 1)) << c.config.name;
    }
  }
}

TEST(Stage, PositionsWithoutTargetsAddNeitherLossNorGradient) {
  const Case c = cases()[1];
  Memory memory;
  Stage<double> stage = make_stage(c, memory);
  Sequences s = sequences(c);
  std::fill(s.targets.begin(), s.targets.end(), -1);
  stage.zero_gradients();
  EXPECT_EQ(stage.forward(0, s.view(), 1, Mode::kTrain), 0);
  stage.backward(0, s.view(), Weights::kNow);
  stage.finish_gradients(nullptr);
  for (std::int64_t i = 0; i < stage.count(); ++i) ASSERT_EQ(stage.gradients()[i], 0);
}

TEST(Stage, EvaluationLeavesGradientsAlone) {
  const Case c = cases()[1];
  Memory memory;
  Stage<double> stage = make_stage(c, memory);
  const Sequences s = sequences(c);
  stage.zero_gradients();
  const double trained = stage.forward(0, s.view(), 1, Mode::kTrain);
  const std::vector<double> before(stage.gradients(), stage.gradients() + stage.count());
  EXPECT_EQ(stage.forward(0, s.view(), 1, Mode::kEvaluate), trained);
  EXPECT_EQ(std::vector<double>(stage.gradients(), stage.gradients() + stage.count()), before);
}

// A slice on a tensor rank, computed by any number of threads, holds the whole tensor's values.
TEST(Initialize, ValuesDependOnNeitherThreadsNorSlices) {
  const Config config{"test", 2, 4, 64, 101, 9};
  const auto weights_of = [&](TensorRank tensor, int threads) {
    Memory memory;
    Stage<float> stage(config, StageParts::one(config, {0, 2, true, true}), tensor, nullptr, {1, 1},
                       {}, {}, memory);
    initialize_weights(6, stage, {.count = threads});
    std::map<std::string, std::map<std::int64_t, float>> values;
    for (const Parameter& p : stage.parameters()) {
      p.slice.for_each_run([&](std::int64_t local, std::int64_t logical, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i)
          values[p.name][logical + i] = stage.weights()[p.offset + local + i];
      });
    }
    return values;
  };
  const auto whole = weights_of({}, 1);
  EXPECT_EQ(weights_of({}, 3), whole);
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& [name, slice] : weights_of({rank, 2}, 2)) {
      for (const auto& [index, value] : slice) ASSERT_EQ(value, whole.at(name).at(index)) << name;
    }
  }
}

TEST(Stage, TheFingerprintOfTheTiedTableSeesOneChangedBit) {
  const Case c = cases()[1];
  Memory memory;
  Stage<double> stage = make_stage(c, memory);
  const std::uint64_t before = stage.tied_fingerprint();
  double& element = stage.weights()[stage.parameters().front().offset + 17];
  const double value = element;
  element = std::nextafter(value, 1e9);
  EXPECT_NE(stage.tied_fingerprint(), before);
  element = value;
  EXPECT_EQ(stage.tied_fingerprint(), before);
}

}  // namespace
}  // namespace sinew::model
