// A step that is not finite changes nothing and says which rank and tensor, in every kind of
// layout; the steps after it go on.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "model/checkpoint.h"
#include "model/layouts.h"
#include "model/safetensors.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::ScratchDirectory;

constexpr std::int32_t kPoisoned = 7;  // the token whose row is not finite

// An untied model whose row of token kPoisoned overflows every sum: only sequences with it see
// that.
std::string write_poisoned(const ScratchDirectory& directory, const Config& config) {
  std::vector<NamedTensor> tensors;
  std::string data;
  for (const Parameter& p : whole_parameters(config)) {
    tensors.push_back({p.name, {.dtype = DType::kF32, .shape = p.shape}});
    for (std::int64_t i = 0; i < p.slice.logical_count(); ++i) {
      float value = p.shape.size() < 2 ? 1.0F : static_cast<float>(i % 13 - 6) * 0.01F;
      if (p.name == "wte.weight" && i / config.channels == kPoisoned) value = 3e38F;
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  return directory.write("poisoned.safetensors", make_safetensors_header(tensors, {}) + data);
}

constexpr const char* kUntied =
    R"({"layers": 2, "heads": 2, "channels": 16, "vocabulary": 53, "max_time": 8, "tied": false})";

// Comparable although some are not numbers.
std::map<std::string, std::vector<std::uint64_t>> bits_of(const Trainer::Tensors& tensors) {
  std::map<std::string, std::vector<std::uint64_t>> bits;
  for (const auto& [name, values] : tensors) {
    for (const double value : values) bits[name].push_back(std::bit_cast<std::uint64_t>(value));
  }
  return bits;
}

TEST(NotFinite, TheStepIsSkippedWholeAndNamesRankAndTensorAndTheNextGoesOn) {
  const ScratchDirectory directory;
  TrainOptions base;
  base.model = directory.write("model.json", kUntied);
  base.init = write_poisoned(directory, load_config(base.model));
  base.batch = 8;
  base.microbatches = 2;
  base.threads = 1;
  struct Case {
    test::Split split;
    const char* dtype = "f32";
  };
  for (const Case& one :
       {Case{{1, 1, 1, 0}}, Case{{1, 1, 2, 0}}, Case{{1, 1, 2, 1}}, Case{{1, 1, 2, 2}},
        Case{{1, 1, 2, 3}}, Case{{1, 1, 4, 2, 2}}, Case{{1, 1, 4, 3, 2}, "bf16"},
        Case{{1, 2, 2, 1}}, Case{{2, 1, 2, 3}}, Case{{2, 2, 1, 0}}}) {
    TrainOptions options = base;
    one.split.apply(options);
    options.dtype = one.dtype;
    const int world = one.split.world();
    test::run_ranks(world, [&](comm::Communicator& ranks) {
      const TrainPlan plan = make_plan(options, world);
      const auto trainer = Trainer::create(plan, ranks);
      Batch good = make_batch(plan, 3);
      for (std::int32_t& token : good.tokens) token = token == kPoisoned ? 8 : token;
      Batch bad = good;
      bad.tokens.back() = kPoisoned;  // in the last replica's last sequence
      const auto step = [&](const Batch& batch) {
        return trainer->step_on(batch.tokens.data(), batch.targets.data());
      };
      EXPECT_FALSE(step(good).skipped);  // so that moments are not zero
      const auto before = bits_of(trainer->gather_weights());
      const StepMetrics skipped = step(bad);
      EXPECT_TRUE(skipped.skipped) << name_of(options);
      // Its gradients all pass through the first stage of the last replica.
      const int culprit = plan.grid.rank_of({0, 0, 0, one.split.dp - 1});
      EXPECT_EQ(skipped.note, "step skipped: the gradient of wte.weight is not finite (rank " +
                                  std::to_string(culprit) + ")")
          << name_of(options);
      EXPECT_EQ(bits_of(trainer->gather_weights()), before) << name_of(options);
      const StepMetrics next = step(good);
      EXPECT_FALSE(next.skipped) << name_of(options);
      EXPECT_TRUE(std::isfinite(next.loss));
      EXPECT_NE(bits_of(trainer->gather_weights()), before);
      const std::string saved = directory.path("saved");
      trainer->save(saved);
      const TrainingState state = read_state(find_checkpoint(saved));
      EXPECT_EQ(state.step, 3);
      EXPECT_EQ(state.optimizer_steps, 2);
    });
  }
}

// Weights of a file that are no numbers, in any layout, and as they are rounded.
TEST(NotFinite, WeightsOfAFileAreRefusedWithTheirFileTensorAndElement) {
  const ScratchDirectory directory;
  TrainOptions base;
  base.model = directory.write("model.json", kUntied);
  const Config config = load_config(base.model);
  const std::string good = test::read_file(write_poisoned(directory, config));
  const Parameter last = whole_parameters(config).back();
  base.threads = 1;
  struct Case {
    float value;
    const char* dtype;
    test::Split split;
    const char* words;  // empty: it is trained on
  };
  for (const Case& one : {Case{std::nanf(""), "f32", {1, 1, 1, 0}, "is nan in f32"},
                          Case{HUGE_VALF, "f32", {2, 1, 1, 0}, "is inf in f32"},
                          Case{-HUGE_VALF, "f64", {1, 2, 1, 0}, "is -inf in f64"},
                          Case{std::nanf(""), "f32", {1, 1, 2, 3}, "is nan in f32"},
                          Case{3.4028234e38F, "bf16", {1, 1, 1, 0}, "is inf in bf16"},
                          Case{3.4028234e38F, "f32", {1, 1, 1, 0}, ""}}) {
    std::string bytes = good;  // of the last element in the file
    std::memcpy(bytes.data() + bytes.size() - sizeof one.value, &one.value, sizeof one.value);
    TrainOptions options = base;
    options.init = directory.write("weights.safetensors", bytes);
    one.split.apply(options);
    options.dtype = one.dtype;
    const int world = one.split.world();
    test::run_ranks(world, [&](comm::Communicator& ranks) {
      const std::string refusal = test::usage_error_of(
          [&] { static_cast<void>(Trainer::create(make_plan(options, world), ranks)); });
      EXPECT_EQ(refusal.empty(), *one.words == '\0') << refusal;
      if (refusal.empty()) return;
      for (const std::string& word : {std::string(one.words), "'" + last.name + "'", options.init})
        EXPECT_NE(refusal.find(word), std::string::npos) << refusal;
    });
  }
}

}  // namespace
}  // namespace sinew::model
