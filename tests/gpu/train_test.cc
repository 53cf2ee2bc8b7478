// Whole training runs on the device: forward, backward and update of small models, over tensor,
// pipeline and data parallelism with ZeRO, equal to the same runs on the processor.
#include <map>
#include <mutex>

#include "tests/gpu/device_array.h"
#include "tests/gpu/difference.h"
#include "tests/gpu/races.h"
#include "tests/gpu/training.h"
#include "tests/model/support.h"

namespace sinew {
namespace {

using namespace model;
using namespace testing;
using model::test::ScratchDirectory;

struct Run {
  std::vector<double> losses;
  std::vector<double> norms;
  Trainer::Tensors gradients;  // of the last step
  Trainer::Tensors moved;      // weights at the end less those at the beginning
  Summary summary;
};

constexpr int kSteps = 2;

Run train(const TrainPlan& plan, comm::Communicator& ranks, const TrainDevice* device) {
  const auto trainer = Trainer::create(plan, ranks, nullptr, device);
  const Batch batch = make_batch(plan, 3);
  Run run;
  const Trainer::Tensors before = trainer->gather_weights();
  for (int i = 0; i < kSteps; ++i) {
    const StepMetrics step = trainer->step_on(batch.tokens.data(), batch.targets.data());
    run.losses.push_back(step.loss);
    run.norms.push_back(step.gradient_norm);
  }
  run.gradients = trainer->gather_gradients();
  run.moved = trainer->gather_weights();
  for (auto& [name, tensor] : run.moved) {
    for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] -= before.at(name)[i];
  }
  run.summary = trainer->summary();
  trainer->close();
  return run;
}

Run train_on_device(const TrainPlan& plan, comm::Communicator& ranks, Messages messages) {
  Run run;
  with_device(messages, nullptr,
              [&](const TrainDevice& device) { run = train(plan, ranks, &device); });
  return run;
}

// Host and device round the same results to bf16 and sum in other orders, so that their runs differ
// as those of two layouts do: layout_bound() counts 20 roundings a layer, to which the device adds
// 4 (attention's weights and their gradients before they are multiplied), and stands for 4 layers;
// here are 2. The update is smooth in the gradient, since epsilon is as large as gradients are.
void expect_equal(const Run& actual, const Run& expected, const std::string& rounding,
                  const std::string& where) {
  const double bound = layout_bound("bf16");
  for (int i = 0; i < kSteps; ++i) {
    const auto step = static_cast<std::size_t>(i);
    EXPECT_NEAR(actual.losses[step] / expected.losses[step], 1, bound / 10) << where;
    EXPECT_NEAR(actual.norms[step] / expected.norms[step], 1, bound) << where;
  }
  EXPECT_LT(actual.losses.back(), actual.losses.front()) << where;
  for (const auto& [name, tensor] : expected.gradients)
    EXPECT_LE(difference(actual.gradients.at(name), tensor), bound) << where << " " << name;
  // Rounded at random, a weight moves by whole units or not at all: its next loss is compared.
  if (rounding == "stochastic") return;
  for (const auto& [name, tensor] : expected.moved)
    EXPECT_LE(difference(actual.moved.at(name), tensor), bound) << where << " " << name;
}

// Memory, calls and payloads are as predicted on the device, too.
void expect_predicted(const Summary& summary, int world, const std::string& where) {
  EXPECT_EQ(summary.device, "twin");
  double calls = 0;
  int bytes = 0;
  for (const Compared& row : summary.compared) {
    if (row.unit == "s" || row.name.starts_with("utilisation")) continue;
    if (row.unit == "calls") calls = row.predicted;
    if (row.unit == "bytes") ++bytes;
    if (row.name.find(" sent ") != std::string::npos) {
      EXPECT_NEAR(row.measured, row.predicted, 2 * 8 * world * calls) << where << " " << row.name;
    } else {
      EXPECT_EQ(row.measured, row.predicted) << where << " " << row.name;
    }
  }
  EXPECT_GE(bytes, 4) << where;
}

void expect_same_on_both(const TrainOptions& options, int world, Messages messages) {
  const TrainPlan plan = make_plan(options, world);
  ASSERT_EQ(refuse_on_device(plan), "");
  const std::string where = name_of(plan.options);
  std::mutex one;
  comm::Communicator::run_threads(world, {.timeout_s = kHangS}, [&](comm::Communicator& ranks) {
    const Run host = train(plan, ranks, nullptr);
    const Run device = train_on_device(plan, ranks, messages);
    const std::lock_guard lock(one);
    expect_predicted(device.summary, world, where);
    if (ranks.rank() == 0) expect_equal(device, host, options.rounding, where);
  });
}

constexpr const char* kGpt2 =
    R"({"family": "gpt2", "vocabulary": 44, "max_time": 12, "layers": 2, "heads": 4,)"
    R"( "channels": 32})";

constexpr const char* kLlama =
    R"({"family": "llama", "vocabulary": 44, "max_time": 12, "layers": 2, "heads": 4,)"
    R"( "kv_heads": 2, "channels": 32, "hidden": 40, "tied": false})";

struct Layout {
  const char* model;
  int tp = 1;
  int cp = 1;
  const char* cp_mode = "zigzag";
  int pp = 1;
  Messages messages = Messages::kByDevice;
  int zero = 0;
  int shard = 0;
  bool sequence_parallel = false;
  const char* schedule = "1f1b";
  const char* recompute = "none";
  double dropout = 0;
  const char* rounding = "nearest";
};

void expect_same_on_both(std::vector<Layout> layouts, int world) {
  if (kRaceDetector) GTEST_SKIP() << "the CPU kernels are not instrumented: run by test_gpu";
  if (kFewSchedules) layouts.resize(1);
  const ScratchDirectory directory;
  for (const Layout& layout : layouts) {
    TrainOptions options = small_options(directory.write("model.json", layout.model), kSteps);
    options.tp = layout.tp;
    options.cp = layout.cp;
    options.cp_mode = layout.cp_mode;
    options.pp = layout.pp;
    options.zero = layout.zero;
    options.shard = layout.shard;
    options.sequence_parallel = layout.sequence_parallel;
    options.schedule = layout.schedule;
    options.recompute = layout.recompute;
    options.dropout = layout.dropout;
    options.rounding = layout.rounding;
    options.batch = std::max(4, 2 * world / (layout.tp * layout.cp * layout.pp));
    expect_same_on_both(options, world, layout.messages);
  }
}

TEST(Train, OneRankOfTheDeviceTrainsAsTheProcessor) {
  expect_same_on_both({{.model = kGpt2},
                       {.model = kGpt2, .recompute = "selective", .dropout = 0.1},
                       {.model = kLlama, .rounding = "stochastic"},
                       {.model = kLlama, .recompute = "full"}},
                      1);
}

TEST(Train, TwoRanksOfTheDeviceTrainAsTheProcessorInEveryKindOfParallelism) {
  expect_same_on_both({{.model = kGpt2, .tp = 2},
                       {.model = kLlama, .tp = 2, .sequence_parallel = true},
                       {.model = kGpt2, .tp = 2, .sequence_parallel = true, .dropout = 0.1},
                       {.model = kGpt2, .pp = 2},
                       {.model = kGpt2, .pp = 2, .messages = Messages::kByHost},
                       {.model = kLlama, .pp = 2, .schedule = "zb-h1"},
                       {.model = kGpt2, .zero = 0},
                       {.model = kGpt2, .zero = 1},
                       {.model = kLlama, .zero = 2},
                       {.model = kGpt2, .zero = 3}},
                      2);
}

TEST(Train, TwoRanksOfTheDeviceShareSequencesAsTheProcessorInEveryMode) {
  expect_same_on_both({{.model = kGpt2, .cp = 2},
                       {.model = kGpt2, .cp = 2, .cp_mode = "striped", .zero = 3, .dropout = 0.1},
                       {.model = kGpt2, .cp = 2, .cp_mode = "ulysses", .zero = 1},
                       {.model = kLlama, .cp = 2, .cp_mode = "ulysses", .recompute = "full"}},
                      2);
}

TEST(Train, FourRanksOfTheDeviceShareSequencesBesideTensorParallelism) {
  expect_same_on_both({{.model = kGpt2, .tp = 2, .cp = 2, .sequence_parallel = true},
                       {.model = kGpt2, .tp = 2, .cp = 2, .cp_mode = "ulysses", .zero = 2}},
                      4);
}

TEST(Train, FourRanksOfTheDeviceShareSequencesBesideAPipelineAndZeRO) {
  expect_same_on_both(
      {{.model = kLlama, .cp = 2, .cp_mode = "striped", .pp = 2, .schedule = "zb-h1"},
       {.model = kLlama, .cp = 4, .cp_mode = "contiguous", .zero = 3}},
      4);
}

TEST(Train, FourRanksOfTheDeviceTrainAsTheProcessorInParallelismOfTwoKinds) {
  expect_same_on_both({{.model = kGpt2, .tp = 2, .pp = 2},
                       {.model = kLlama, .tp = 4},  // two ranks for each key-value head
                       {.model = kGpt2, .tp = 2, .zero = 3, .sequence_parallel = true},
                       {.model = kGpt2, .zero = 3, .shard = 2},
                       {.model = kLlama, .pp = 2, .zero = 1}},
                      4);
}

TEST(Train, WhatADeviceCannotTrainYetIsOneLineWithTheLegalValues) {
  const ScratchDirectory directory;
  const TrainOptions legal = small_options(directory.write("model.json", kGpt2), kSteps);
  const auto refusal = [&](const std::function<void(TrainOptions&)>& change) {
    TrainOptions options = legal;
    change(options);
    return refuse_on_device(make_plan(options, 1));
  };
  EXPECT_EQ(refusal([](TrainOptions&) {}), "");
  const std::string narrow =
      directory.write("narrow.json", R"({"vocabulary": 44, "max_time": 12, "layers": 1,)"
                                     R"( "heads": 8, "channels": 32})");
  for (const std::string& line : {refusal([](TrainOptions& o) { o.dtype = "f32"; }),
                                  refusal([](TrainOptions& o) { o.offload = "/tmp"; }),
                                  refusal([&](TrainOptions& o) { o.model = narrow; })}) {
    EXPECT_NE(line.find("legal values: "), std::string::npos) << line;
    EXPECT_NE(line.find("--device cpu"), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace sinew
