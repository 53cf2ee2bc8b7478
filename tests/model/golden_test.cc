// The model against PyTorch's numbers (tests/golden): logits, losses, every gradient, ten AdamW
// steps.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/mapped_file.h"
#include "model/safetensors.h"
#include "model/stage.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::run_ranks;
using test::ScratchDirectory;

constexpr const char* kGpt2 = SINEW_SOURCE_DIR "/tests/golden/gpt2_golden.safetensors";
constexpr const char* kLlama = SINEW_SOURCE_DIR "/tests/golden/llama_golden.safetensors";
constexpr int kSteps = 10;

class Golden {
 public:
  explicit Golden(const char* path = kGpt2)
      : file_(path), index_(parse_safetensors(file_.bytes(), path)) {}

  template <typename T>
  std::vector<T> get(const std::string& name) const {
    const TensorEntry& entry = index_.tensors.at(name);
    EXPECT_EQ(size_of(entry.dtype), sizeof(T));
    std::vector<T> values(static_cast<std::size_t>(entry.count()));
    std::memcpy(values.data(), file_.bytes().data() + index_.data_begin + entry.begin,
                values.size() * sizeof(T));
    return values;
  }

  // The initial weights as a file of their own.
  std::string init_file(const ScratchDirectory& directory) const {
    std::vector<NamedTensor> tensors;
    std::string data;
    for (const auto& [name, entry] : index_.tensors) {
      if (!name.starts_with("init.")) continue;
      tensors.push_back({name.substr(5), entry});
      const auto values = get<double>(name);
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
    }
    return directory.write("init.safetensors", make_safetensors_header(tensors, {}) + data);
  }

  const SafetensorsIndex& index() const { return index_; }

 private:
  MappedFile file_;
  SafetensorsIndex index_;
};

// max |a - b| / max |a|
double difference(const std::vector<double>& expected, const std::vector<double>& actual) {
  EXPECT_EQ(expected.size(), actual.size());
  double scale = 0;
  double most = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    scale = std::max(scale, std::abs(expected[i]));
    most = std::max(most, std::abs(expected[i] - actual[i]));
  }
  return most / scale;
}

TrainOptions golden_options(const ScratchDirectory& directory, const Golden& golden) {
  TrainOptions options;
  options.model = directory.write(
      "golden.json",
      R"({"layers": 2, "heads": 2, "channels": 16, "vocabulary": 37, "max_time": 12})");
  options.batch = 3;
  options.lr = 3e-3;
  options.min_lr = 3e-3;
  options.steps = kSteps;
  options.init = golden.init_file(directory);
  return options;
}

// A softmax does not see a key's bias: its gradient is 0 but for rounding, which AdamW with epsilon
// 1e-8 turns into steps of a whole learning rate in f32.
void forget_key_bias(std::vector<double>& qkv_bias) {
  const auto third = static_cast<std::ptrdiff_t>(qkv_bias.size() / 3);
  std::fill(qkv_bias.begin() + third, qkv_bias.begin() + 2 * third, 0.0);
}

// Trains ten steps in this layout and compares everything with the file.
void expect_golden(TrainOptions options, const Golden& golden, int world, double tolerance) {
  const auto tokens = golden.get<std::int32_t>("tokens");
  const auto targets = golden.get<std::int32_t>("targets");
  const auto losses = golden.get<double>("losses");
  const auto norms = golden.get<double>("grad_norms");
  run_ranks(world, [&](comm::Communicator& ranks) {
    const TrainPlan plan = make_plan(options, world);
    const auto trainer = Trainer::create(plan, ranks);
    for (std::size_t step = 0; step < kSteps; ++step) {
      const StepMetrics metrics = trainer->step_on(tokens.data(), targets.data());
      const Trainer::Tensors gradients =
          step == 0 ? trainer->gather_gradients() : Trainer::Tensors();
      if (ranks.rank() != 0) continue;
      EXPECT_NEAR(metrics.loss, losses[step], tolerance * losses[step]) << step;
      EXPECT_NEAR(metrics.gradient_norm, norms[step], tolerance * norms[step]) << step;
      for (const auto& [name, gradient] : gradients) {
        EXPECT_LE(difference(golden.get<double>("grad." + name), gradient), tolerance) << name;
      }
    }
    for (const auto& [name, weight] : trainer->gather_weights()) {
      if (ranks.rank() != 0) continue;
      std::vector<double> expected = golden.get<double>("final." + name);
      std::vector<double> found = weight;
      if (options.dtype == "f32" && name.ends_with("c_attn.bias")) {
        forget_key_bias(expected);
        forget_key_bias(found);
      }
      EXPECT_LE(difference(expected, found), tolerance) << name;
    }
  });
}

TEST(Golden, TenTrainingStepsInF64AgreeWithPyTorchTo1e10InEveryKindOfLayout) {
  const ScratchDirectory directory;
  const Golden golden;
  TrainOptions options = golden_options(directory, golden);
  options.dtype = "f64";
  expect_golden(options, golden, 1, 1e-10);
  options.tp = 2;
  options.pp = 2;
  options.microbatches = 3;
  expect_golden(options, golden, 4, 1e-10);
  options.tp = 1;
  options.pp = 1;
  options.dp = 3;
  options.zero = 1;
  options.microbatches = 1;
  expect_golden(options, golden, 3, 1e-10);
}

TEST(Golden, TenStepsOfLlamaInF64AgreeWithPyTorchTo1e10InEveryKindOfLayout) {
  const ScratchDirectory directory;
  const Golden golden(kLlama);
  TrainOptions options = golden_options(directory, golden);
  options.model = directory.write("llama.json", R"({"family": "llama", "layers": 2, "heads": 4,
      "kv_heads": 2, "channels": 16, "hidden": 24, "vocabulary": 37, "max_time": 12,
      "tied": false})");
  options.dtype = "f64";
  expect_golden(options, golden, 1, 1e-10);
  options.tp = 4;  // two ranks hold each key/value head
  options.sequence_parallel = true;
  expect_golden(options, golden, 4, 1e-10);
  options.tp = options.cp = options.pp = 2;
  options.microbatches = 3;
  expect_golden(options, golden, 8, 1e-10);
}

// Two roundings of 2^-24 per operation; the longest chain of dependent sums in this model (12
// positions x 64 hidden units, two layers forward and back) stays below a hundred terms of random
// sign, and ten AdamW steps each add at most one learning rate's rounding: 500 u leaves a margin of
// two.
TEST(Golden, TenTrainingStepsInF32AgreeWithPyTorchTo500Roundings) {
  const ScratchDirectory directory;
  const Golden golden;
  expect_golden(golden_options(directory, golden), golden, 1, 500 * 0x1p-24);
}

TEST(Golden, LogitsAndTheSumOfTokenLossesAgreeTo1e12) {
  const ScratchDirectory directory;
  const Golden golden;
  const TrainPlan plan = make_plan(golden_options(directory, golden), 1);
  Memory memory;
  Stage<double> stage(plan.config, StageParts::one(plan.config, {0, 2, true, true}), {}, nullptr,
                      {3, 12}, {}, {}, memory);
  for (const Parameter& p : stage.parameters()) {
    const auto values = golden.get<double>("init." + p.name);
    std::copy(values.begin(), values.end(), stage.weights() + p.offset);
  }
  const auto tokens = golden.get<std::int32_t>("tokens");
  const auto targets = golden.get<std::int32_t>("targets");
  const double loss = stage.forward(stage.open(0), {tokens.data(), targets.data()}, 0.0,
                                    Stage<double>::Mode::kEvaluate);
  const auto expected = golden.get<double>("logits");
  EXPECT_LE(difference(expected, {stage.logits(), stage.logits() + expected.size()}), 1e-12);
  double sum = 0;
  for (const double token_loss : golden.get<double>("token_losses")) sum += token_loss;
  EXPECT_NEAR(loss, sum, 1e-12 * sum);
}

}  // namespace
}  // namespace sinew::model
