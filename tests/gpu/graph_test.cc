// Training steps that are recorded and repeated: the bits of steps that are queued call by call,
// over every kind of parallelism; and what a recording must not contain is told.
#include <bit>
#include <functional>
#include <mutex>

#include "comm/ask.h"
#include "comm/device/door.h"
#include "kernels/device/accelerator.h"
#include "model/device.h"
#include "model/layouts.h"
#include "model/trainer.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/races.h"
#include "tests/gpu/ranks.h"
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

// What stands between a rank's trainer and its device.
using Meddle = std::function<void(kernels::DeviceAccelerator&, const comm::Ask&)>;
using Body = std::function<void(const TrainDevice&)>;
enum class Messages : std::uint8_t { kByDevice, kByHost };

void with_device(const Meddle& meddle, Messages messages, const Body& body) {
  twin::Config config = twin::Scope::current();
  config.spin_limit_s = kHangS;
  const twin::Scope scope(config);
  kernels::DeviceAccelerator accelerator;
  body({.accelerator = &accelerator,
        .open_door = [&](comm::Communicator& group,
                         Parallel::Moves moves) -> std::unique_ptr<comm::DeviceDoor> {
          if (moves == Parallel::Moves::kMessages && messages == Messages::kByHost) return nullptr;
          comm::ResidentOptions options;
          options.channels = 2;
          options.threads = 32;
          options.timeout_s = kHangS;
          return std::make_unique<SpyDoor>(
              comm::open_device_door(
                  group, accelerator.stream(),
                  [&](const void* pointer) { return accelerator.owns(pointer); }, options,
                  moves == Parallel::Moves::kMessages ? comm::DoorUse::kCollectivesAndMessages
                                                      : comm::DoorUse::kCollectives),
              [&](const comm::Ask& ask) { meddle(accelerator, ask); });
        },
        .name = "twin"});
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
  with_device([&](auto&, auto&) { ++calls; }, Messages::kByDevice,
              [&](const TrainDevice& device) {
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

TrainOptions small_options(const std::string& model) {
  TrainOptions options;
  options.model = model;
  options.dtype = "bf16";
  options.batch = 4;
  options.microbatches = 2;
  options.steps = kSteps;
  options.lr = 0.05;
  options.eps = noise_epsilon("bf16");
  options.threads = 1;
  return options;
}

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
  TrainOptions options = small_options(directory.write("model.json", GetParam().model));
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
  TrainOptions options = small_options(directory.write("model.json", kGpt2));
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
  TrainOptions options = small_options(directory.write("model.json", kGpt2));
  options.graph = true;
  const TrainPlan plan = make_plan(options, 2);
  comm::Communicator::run_threads(2, {.timeout_s = kHangS}, [&](comm::Communicator& ranks) {
    const Meddle in_recording = [&](kernels::DeviceAccelerator& accelerator, const comm::Ask& ask) {
      if (accelerator.recording()) meddle(accelerator, ask);
    };
    with_device(in_recording, Messages::kByDevice, [&](const TrainDevice& device) {
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
  TrainOptions options = small_options(directory.write("model.json", kGpt2));
  options.graph = true;
  options.pp = 2;
  const TrainPlan plan = make_plan(options, 2);
  comm::Communicator::run_threads(2, {.timeout_s = kHangS}, [&](comm::Communicator& ranks) {
    with_device(
        [](auto&, auto&) {}, Messages::kByHost,
        [&](const TrainDevice& device) {
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
