// Masks per token, however unevenly they fall on replicas, context ranks and microbatches: the loss
// is the sum over all targets of the batch over their number. And the vocabulary is never padded.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/layouts.h"
#include "model/safetensors.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::ScratchDirectory;

constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kTime = 16;

TrainOptions base_options(const ScratchDirectory& directory) {
  TrainOptions options;
  options.model = test::write_model(
      directory, {.layers = 2, .heads = 4, .channels = 16, .vocabulary = 53, .max_time = 16});
  options.dtype = "f64";
  options.batch = kBatch;
  options.clip = 0.5;
  options.dropout = 0.1;
  options.threads = 1;
  return options;
}

// One kind of raggedness each; keep(sequence, position) says whether there is a target.
struct Mask {
  const char* name;
  bool (*keep)(std::int64_t sequence, std::int64_t position);
};
const Mask kMasks[] = {
    {"one target in the whole batch", [](auto s, auto t) { return s == 5 && t == 11; }},
    {"replica 0 has one, the others all", [](auto s, auto t) { return s >= 2 || (s == 1 && !t); }},
    {"sequences of growing length", [](auto s, auto t) { return t < 2 * s; }},
    {"the first context rank has none", [](auto, auto t) { return t >= 8; }},
    {"one microbatch has none", [](auto s, auto) { return s / 2 % 2 == 1; }},
    {"every seventh token", [](auto s, auto t) { return (16 * s + t) % 7 == 0; }},
};

Batch masked(const TrainOptions& options, const Mask& mask) {
  Batch batch = make_batch(make_plan(options, 1), 5);
  for (std::int64_t i = 0; i < kBatch * kTime; ++i) {
    std::int32_t& target = batch.targets[static_cast<std::size_t>(i)];
    target = mask.keep(i / kTime, i % kTime) ? batch.tokens[static_cast<std::size_t>(i)] : -1;
  }
  return batch;
}

LayoutRun run(const TrainOptions& options, int world, const Batch& batch) {
  LayoutRun result;
  test::run_ranks(world, [&](comm::Communicator& ranks) {
    const LayoutRun own = run_layout(make_plan(options, world), ranks, batch, 2);
    if (ranks.rank() == 0) result = own;
  });
  return result;
}

// Each sequence alone has the mean over its own targets; the batch's loss is not the mean of those
// means.
TEST(Masks, TheLossIsTheSumOverAllTargetsOverTheirNumber) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.dropout = 0;
  TrainOptions alone = options;
  alone.batch = 1;
  for (const Mask& mask : kMasks) {
    const Batch batch = masked(options, mask);
    double sum = 0;
    double count = 0;
    for (std::int64_t s = 0; s < kBatch; ++s) {
      Batch one;
      const auto part = [&](const std::vector<std::int32_t>& all) {
        return std::vector<std::int32_t>(all.begin() + s * kTime, all.begin() + (s + 1) * kTime);
      };
      one.tokens = part(batch.tokens);
      one.targets = part(batch.targets);
      const auto targets = static_cast<double>(
          std::count_if(one.targets.begin(), one.targets.end(), [](auto t) { return t >= 0; }));
      if (targets > 0) sum += run(alone, 1, one).losses.front() * targets;
      count += targets;
    }
    EXPECT_NEAR(run(options, 1, batch).losses.front(), sum / count, 1e-12) << mask.name;
  }
}

TEST(Masks, EveryLayoutTrainsTheModelOfOneRankUnderEveryMask) {
  const ScratchDirectory directory;
  const TrainOptions base = base_options(directory);
  struct Split {
    int tp, cp, pp, dp, zero, microbatches;
    const char* cp_mode = "zigzag";
    bool sequence_parallel = false;
  };
  const Split splits[] = {{1, 1, 1, 4, 0, 2},
                          {1, 1, 1, 4, 3, 1},
                          {1, 2, 1, 1, 0, 4},
                          {1, 2, 1, 2, 2, 2, "contiguous"},
                          {1, 1, 2, 1, 0, 4},
                          {1, 1, 2, 2, 1, 4},
                          {2, 2, 1, 1, 1, 1, "ulysses", true},
                          {2, 1, 2, 1, 0, 2}};
  for (const Mask& mask : kMasks) {
    TrainOptions single = base;
    single.microbatches = 1;
    const Batch batch = masked(base, mask);
    const LayoutRun reference = run(single, 1, batch);
    EXPECT_GT(reference.norms.front(), 0);
    for (const Split& split : splits) {
      TrainOptions options = base;
      options.tp = split.tp;
      options.cp = split.cp;
      options.pp = split.pp;
      options.dp = split.dp;
      options.zero = split.zero;
      options.microbatches = split.microbatches;
      options.cp_mode = split.cp_mode;
      options.sequence_parallel = split.sequence_parallel;
      const int world = split.tp * split.cp * split.pp * split.dp;
      const LayoutError error = compare_runs(reference, run(options, world, batch));
      EXPECT_LE(error.largest(), layout_bound("f64"))
          << mask.name << ": " << name_of(options) << ", worst " << error.worst_tensor;
    }
  }
}

// No target at all: loss and gradient are 0 and nothing is divided by 0.
TEST(Masks, ABatchWithoutTargetsHasLossAndGradientZero) {
  const ScratchDirectory directory;
  const TrainOptions options = base_options(directory);
  const Batch batch = masked(options, {"none", [](auto, auto) { return false; }});
  const LayoutRun none = run(options, 2, batch);
  for (const double loss : none.losses) EXPECT_EQ(loss, 0);
  for (const double norm : none.norms) EXPECT_EQ(norm, 0);
  for (const auto& [name, tensor] : none.weights) {
    for (const double value : tensor) ASSERT_TRUE(std::isfinite(value)) << name;
  }
}

// With all weights 0 every logit is, and the loss is that of guessing over the vocabulary's tokens:
// a column of padding on any rank would be one token more.
TEST(Masks, GuessingCostsTheLogarithmOfTheVocabularyHoweverItIsCut) {
  const ScratchDirectory directory;
  TrainOptions options = base_options(directory);
  options.model = test::write_model(
      directory, {.layers = 1, .heads = 24, .channels = 24, .vocabulary = 53, .max_time = 16});
  std::vector<NamedTensor> tensors;
  std::size_t bytes = 0;
  for (const Parameter& p : whole_parameters(load_config(options.model))) {
    tensors.push_back({p.name, {.dtype = DType::kF32, .shape = p.shape}});
    bytes += static_cast<std::size_t>(p.slice.logical_count()) * 4;
  }
  const std::string header = make_safetensors_header(tensors, {});
  options.init = directory.write("zeros.safetensors", header + std::string(bytes, '\0'));
  for (const int tp : {1, 2, 3, 4, 6, 8}) {
    options.tp = tp;
    const LayoutRun zeros = run(options, tp, make_batch(make_plan(options, tp), 5));
    EXPECT_NEAR(zeros.losses.front(), std::log(53.0), 1e-14) << tp;
  }
}

}  // namespace
}  // namespace sinew::model
