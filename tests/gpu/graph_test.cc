// Training steps that are recorded and repeated: the bits of steps that are queued call by call,
// over every kind of parallelism; and what a recording must not contain is told.
#include <bit>
#include <functional>
#include <mutex>

#include "comm/ask.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/races.h"
#include "tests/gpu/training.h"
#include "tests/model/support.h"

namespace sinew {
namespace {

using namespace model;
using namespace testing;
using model::test::ScratchDirectory;

constexpr int kSteps = 3;  // plain, recorded, repeated

// Calls `at_start` before every collective of the door it stands before.
class SpyDoor final : public comm::DeviceDoor {
 public:
  using AtStart = std::function<void(const comm::Ask&)>;
  SpyDoor(std::unique_ptr<comm::DeviceDoor> door, AtStart at_start)
      : door_(std::move(door)), at_start_(std::move(at_start)) {}
  [[nodiscard]] bool owns(const void* pointer) const override { return door_->owns(pointer); }
  [[nodiscard]] Started start(const comm::Ask& ask, std::string_view algorithm) override {
    at_start_(ask);
    return door_->start(ask, algorithm);
  }
  [[nodiscard]] bool takes_messages() const override { return door_->takes_messages(); }
  [[nodiscard]] std::uint64_t start_send(const void* data, std::int64_t count, DType dtype,
                                         Way way) override {
    return door_->start_send(data, count, dtype, way);
  }
  [[nodiscard]] std::uint64_t start_recv(void* data, std::int64_t count, DType dtype,
                                         Way way) override {
    return door_->start_recv(data, count, dtype, way);
  }
  void finish(std::uint64_t ticket) override { door_->finish(ticket); }
  [[nodiscard]] bool done(std::uint64_t ticket) override { return door_->done(ticket); }
  void check() override { door_->check(); }
  void close() override { door_->close(); }

 private:
  std::unique_ptr<comm::DeviceDoor> door_;
  AtStart at_start_;
};

// What is done to a rank's device before each of its collectives.
using Meddle = std::function<void(kernels::DeviceAccelerator&, const comm::Ask&)>;

Wrap spied(const Meddle& meddle) {
  return [&meddle](kernels::DeviceAccelerator& accelerator,
                   std::unique_ptr<comm::DeviceDoor> door) -> std::unique_ptr<comm::DeviceDoor> {
    return std::make_unique<SpyDoor>(std::move(door),
                                     [&](const comm::Ask& ask) { meddle(accelerator, ask); });
  };
}

struct Steps {
  std::vector<StepMetrics> steps;
  std::vector<int> calls;  // through the doors, in each step
  Trainer::Tensors gradients;
  Trainer::Tensors weights;
  Summary summary;
};

Steps train(TrainPlan plan, comm::Communicator& ranks, bool graph) {
  plan.options.graph = graph;
  Steps run;
  int calls = 0;
  const Meddle count = [&](auto&, auto&) { ++calls; };
  with_device(Messages::kByDevice, spied(count), [&](const TrainDevice& device) {
    const auto trainer = Trainer::create(plan, ranks, nullptr, &device);
    for (std::uint64_t i = 0; i < kSteps; ++i) {
      // Another number of targets in each step.
      const Batch batch = make_batch(plan, 3 + i);
      calls = 0;
      run.steps.push_back(trainer->step_on(batch.tokens.data(), batch.targets.data()));
      run.calls.push_back(calls);
    }
    run.gradients = trainer->gather_gradients();
    run.weights = trainer->gather_weights();
    run.summary = trainer->summary();
    trainer->close();
  });
  return run;
}

void expect_same_bits(const Steps& recorded, const Steps& plain, const std::string& where) {
  for (std::size_t i = 0; i < kSteps; ++i) {
    const StepMetrics& a = recorded.steps[i];
    const StepMetrics& b = plain.steps[i];
    EXPECT_EQ(std::bit_cast<std::uint64_t>(a.loss), std::bit_cast<std::uint64_t>(b.loss))
        << where << " step " << i << ": " << a.loss << ", " << b.loss;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(a.gradient_norm),
              std::bit_cast<std::uint64_t>(b.gradient_norm))
        << where << " step " << i << ": " << a.gradient_norm << ", " << b.gradient_norm;
    EXPECT_EQ(a.note, b.note) << where << " step " << i;
    EXPECT_EQ(recorded.calls[i], i < 2 ? plain.calls[i] : 0)
        << where << " step " << i << " is queued call by call";
  }
  EXPECT_TRUE(recorded.gradients == plain.gradients) << where;
  EXPECT_TRUE(recorded.weights == plain.weights) << where;
  // Calls and bytes of steps that are repeated count as those of others.
  for (std::size_t i = 0; i < plain.summary.compared.size(); ++i) {
    const Compared& row = plain.summary.compared[i];
    if (row.unit == "s" || row.name.starts_with("utilisation")) continue;
    EXPECT_EQ(recorded.summary.compared[i].measured, row.measured) << where << " " << row.name;
  }
}

constexpr const char* kGpt2 =
    R"({"family": "gpt2", "vocabulary": 20, "max_time": 8, "layers": 2, "heads": 4,)"
    R"( "channels": 32})";
constexpr const char* kLlama =
    R"({"family": "llama", "vocabulary": 20, "max_time": 8, "layers": 1, "heads": 4,)"
    R"( "kv_heads": 2, "channels": 32, "hidden": 40, "tied": false})";

// A layout, and what its line says of it.
struct Layout {
  const char* name;
  const char* model;
  int world;
  std::function<void(TrainOptions&)> change;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kLayouts = {
      {"OneRankWithDropoutAndRecomputation", kGpt2, 1,
       [](TrainOptions& o) {
         o.dropout = 0.1;
         o.recompute = "selective";
       }},
      {"OneRankWithStochasticRounding", kLlama, 1,
       [](TrainOptions& o) { o.rounding = "stochastic"; }},
      {"DataParallelism", kGpt2, 2, [](TrainOptions&) {}},
      {"ZeRO1", kGpt2, 2, [](TrainOptions& o) { o.zero = 1; }},
      {"ZeRO3WithDropout", kLlama, 2,
       [](TrainOptions& o) {
         o.zero = 3;
         o.dropout = 0.1;
       }},
      {"TensorAndSequenceParallelism", kLlama, 2,
       [](TrainOptions& o) {
         o.tp = 2;
         o.sequence_parallel = true;
       }},
      {"APipeline", kGpt2, 2,
       [](TrainOptions& o) {
         o.pp = 2;
         o.schedule = "zb-h1";
       }},
      {"RingAttention", kLlama, 2,
       [](TrainOptions& o) {
         o.cp = 2;
         o.batch = 2;
         o.microbatches = 1;
       }},
      {"Ulysses", kLlama, 2,
       [](TrainOptions& o) {
         o.cp = 2;
         o.cp_mode = "ulysses";
       }},
      {"KeysThatRanksShare", kLlama, 4, [](TrainOptions& o) { o.tp = 4; }},
      {"APipelineAndZeRO2", kGpt2, 4,
       [](TrainOptions& o) {
         o.pp = 2;
         o.zero = 2;
       }},
  };
  return kLayouts;
}

class TrainGraphOf : public ::testing::TestWithParam<Layout> {};

TEST_P(TrainGraphOf, RepeatedStepsHaveTheBitsOfQueuedOnes) {
  if (kRaceDetector) GTEST_SKIP() << "the model is not instrumented: run by test_gpu";
  if (kFewSchedules && GetParam().world > 1)
    GTEST_SKIP() << "one rank under a sanitizer, which sees no more in several";
  const ScratchDirectory directory;
  TrainOptions options = small_options(directory.write("model.json", GetParam().model), kSteps);
  GetParam().change(options);
  const TrainPlan plan = make_plan(options, GetParam().world);
  ASSERT_EQ(refuse_on_device(plan), "");
  std::mutex one;
  comm::Communicator::run_threads(GetParam().world, {.timeout_s = kHangS},
                                  [&](comm::Communicator& ranks) {
                                    const Steps plain = train(plan, ranks, false);
                                    const Steps recorded = train(plan, ranks, true);
                                    const std::lock_guard lock(one);
                                    expect_same_bits(recorded, plain, name_of(plan.options));
                                  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, TrainGraphOf, ::testing::ValuesIn(layouts()),
                         [](const auto& layout) { return layout.param.name; });

// Weights become infinite by the first update: every later step is skipped, with its reason, and
// changes nothing.
TEST(TrainGraph, StepsThatAreNotFiniteAreSkippedAndExplainedAlike) {
  if (kFewSchedules) GTEST_SKIP() << "one layout under a sanitizer: the first test above";
  const ScratchDirectory directory;
  TrainOptions options = small_options(directory.write("model.json", kGpt2), kSteps);
  options.lr = 1e39;
  const TrainPlan plan = make_plan(options, 2);
  comm::Communicator::run_threads(2, {.timeout_s = kHangS}, [&](comm::Communicator& ranks) {
    const Steps plain = train(plan, ranks, false);
    const Steps recorded = train(plan, ranks, true);
    for (std::size_t i = 1; i < kSteps; ++i) {
      EXPECT_TRUE(recorded.steps[i].skipped);
      EXPECT_EQ(recorded.steps[i].note, plain.steps[i].note);
      EXPECT_NE(plain.steps[i].note.find("is not finite (rank 0)"), std::string::npos)
          << plain.steps[i].note;
    }
  });
}

// What a recording that meets the meddler says, in all ranks.
void expect_told(const Meddle& meddle, const std::string& words) {
  const ScratchDirectory directory;
  TrainOptions options = small_options(directory.write("model.json", kGpt2), kSteps);
  options.graph = true;
  const TrainPlan plan = make_plan(options, 2);
  comm::Communicator::run_threads(2, {.timeout_s = kHangS}, [&](comm::Communicator& ranks) {
    const Meddle in_recording = [&](kernels::DeviceAccelerator& accelerator, const comm::Ask& ask) {
      if (accelerator.recording()) meddle(accelerator, ask);
    };
    with_device(Messages::kByDevice, spied(in_recording), [&](const TrainDevice& device) {
      const auto trainer = Trainer::create(plan, ranks, nullptr, &device);
      const Batch batch = make_batch(plan, 3);
      static_cast<void>(trainer->step_on(batch.tokens.data(), batch.targets.data()));
      try {
        static_cast<void>(trainer->step_on(batch.tokens.data(), batch.targets.data()));
        ADD_FAILURE() << "nobody noticed; wanted: " << words;
      } catch (const device::Error& error) {
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      }
      trainer->close();
    });
  });
}

TEST(TrainGraph, AHostThatLooksIntoTheMiddleOfARecordedStepIsTold) {
  if (kRaceDetector) GTEST_SKIP() << "the model is not instrumented: run by test_gpu";
  if (!device::properties().twin)
    GTEST_SKIP() << "a GPU gives the host what lay there before: only the twin notices";
  expect_told(
      [](kernels::DeviceAccelerator&, const comm::Ask& ask) {
        static_cast<void>(*static_cast<const volatile char*>(ask.input));
      },
      "the host touches managed memory");
  expect_told(
      [](kernels::DeviceAccelerator& accelerator, const comm::Ask&) { accelerator.synchronize(); },
      "a stream is waited for");
  expect_told(
      [](kernels::DeviceAccelerator& accelerator, const comm::Ask& ask) {
        float value = 0;
        accelerator.copy(&value, ask.input, sizeof value);
      },
      "memory of the host is copied");
  expect_told([](kernels::DeviceAccelerator& accelerator,
                 const comm::Ask&) { static_cast<void>(accelerator.allocate(64)); },
              "memory is allocated");
}

TEST(TrainGraph, APipelineWhoseMessagesTheHostPassesOnIsRefusedInOneLine) {
  if (kRaceDetector) GTEST_SKIP() << "the model is not instrumented: run by test_gpu";
  const ScratchDirectory directory;
  TrainOptions options = small_options(directory.write("model.json", kGpt2), kSteps);
  options.graph = true;
  options.pp = 2;
  const TrainPlan plan = make_plan(options, 2);
  comm::Communicator::run_threads(2, {.timeout_s = kHangS}, [&](comm::Communicator& ranks) {
    with_device(Messages::kByHost, nullptr, [&](const TrainDevice& device) {
      try {
        static_cast<void>(Trainer::create(plan, ranks, nullptr, &device));
        ADD_FAILURE() << "taken";
      } catch (const UsageError& error) {
        EXPECT_NE(std::string(error.what()).find("--graph"), std::string::npos) << error.what();
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      }
    });
  });
}

}  // namespace
}  // namespace sinew
