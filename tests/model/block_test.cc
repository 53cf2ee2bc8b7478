// One layer on tensor-parallel ranks: the number and size of its sums, and its value on any number
// of ranks.
#include "model/block.h"

#include <gtest/gtest.h>

#include <mutex>

#include "model/initialize.h"
#include "model/stage.h"
#include "sched/base/philox.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

constexpr BatchShape kBatch{3, 5};

Config test_config() {
  return {.name = "test", .layers = 1, .heads = 4, .channels = 24, .vocabulary = 11, .max_time = 5};
}

std::vector<double> noise(std::int64_t count, std::uint32_t purpose) {
  const Philox random(7, purpose);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>(random.normal(static_cast<std::uint64_t>(i))));
  return values;
}

struct Result {
  std::vector<double> out;
  std::vector<double> d_x;
};

// Forward and backward of the layer of a stage without ends; checks what the ranks said to each
// other.
Result run_block(int tensor_world) {
  Result result;
  std::mutex mutex;
  test::run_ranks(tensor_world, [&](comm::Communicator& tensor) {
    const Config config = test_config();
    Memory memory;
    Stage<double> stage(config, StageParts::one(config, {0, 1, false, false}),
                        {tensor.rank(), tensor_world}, &tensor, kBatch, {}, {}, memory);
    const int slot = stage.open(0);
    initialize_weights(3, stage);
    const std::int64_t count = stage.boundary_count();
    const std::vector<double> x = noise(count, 1);
    const std::vector<double> d = noise(count, 2);
    std::copy(x.begin(), x.end(), stage.input(slot));

    const auto& counter =
        tensor.counters().collective[static_cast<std::size_t>(sched::Collective::kAllReduce)];
    tensor.reset_counters();
    static_cast<void>(stage.forward(slot, {}, 0, Stage<double>::Mode::kTrain));
    EXPECT_EQ(counter.calls, 2);
    EXPECT_EQ(counter.elements, 2 * count);
    tensor.reset_counters();
    const std::vector<double> out(stage.output(slot), stage.output(slot) + count);
    std::copy(d.begin(), d.end(), stage.output(slot));
    stage.backward(slot, {}, Stage<double>::Weights::kNow);
    EXPECT_EQ(counter.calls, 2);
    EXPECT_EQ(counter.elements, 2 * count);

    const std::lock_guard<std::mutex> lock(mutex);
    const Result own{out, {stage.input(slot), stage.input(slot) + count}};
    // Every rank holds the same bits.
    if (!result.out.empty()) {
      EXPECT_EQ(own.out, result.out);
      EXPECT_EQ(own.d_x, result.d_x);
    }
    result = own;
  });
  return result;
}

TEST(Block, TwoSumsForwardTwoBackwardAndTheSameValueOnAnyNumberOfTensorRanks) {
  const Result one = run_block(1);
  for (const int world : {2, 4}) {
    const Result many = run_block(world);
    for (std::size_t i = 0; i < one.out.size(); ++i) {
      // Sums of at most 4 C terms of order 1, regrouped: 100 roundings leave a margin of ten.
      EXPECT_NEAR(many.out[i], one.out[i], 100 * 0x1p-53);
      EXPECT_NEAR(many.d_x[i], one.d_x[i], 100 * 0x1p-53);
    }
  }
}

}  // namespace
}  // namespace sinew::model
