// The step after the gradients: norm, clipping, AdamW, ZeRO-1's pieces, and gradients that are not
// finite.
#include "model/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "model/initialize.h"
#include "sched/base/philox.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

// Everything one rank needs to take optimizer steps on gradients that a test writes.
struct Rank {
  Rank(comm::Communicator& world, const sched::PerAxis& sizes, const OptimizerOptions& options,
       int shard = 0)
      : parallel(world, sched::Grid(sizes), {0, sizes.pp - 1}, 1, shard),
        stage(test::optimizer_config(),
              StageParts::one(
                  test::optimizer_config(),
                  stage_shape(test::optimizer_config(), sizes.pp, parallel.coordinates().pp)),
              {parallel.coordinates().tp, sizes.tp}, parallel.tensor(), {1, 5},
              {.zero = sched::parse_zero(options.zero),
               .data = parallel.shard(),
               .groups = parallel.shard_groups()},
              {}, memory),
        optimizer(stage, parallel, options, test::optimizer_names(), {}, memory) {
    initialize_weights(1, stage);
  }

  // The whole batch's gradient of a logical element is the same on any grid: its normal noise,
  // spread over the data-parallel ranks in halves, quarters, ... so that their sum is exact.
  void write_gradients(std::uint64_t step) {
    stage.zero_gradients();
    const int dp = parallel.grid().sizes().dp;
    const int mine = parallel.coordinates().dp;
    const double share = std::ldexp(1.0, -(mine + 1 < dp ? mine + 1 : mine));
    for (const Parameter& p : stage.parameters()) {
      const Philox random(step, static_cast<std::uint32_t>(p.index));
      p.slice.for_each_run([&](std::int64_t local, std::int64_t logical, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          const auto value =
              static_cast<double>(random.normal(static_cast<std::uint64_t>(logical + i)));
          // Both copies of a tied table contribute: their sum counts.
          const bool two = p.layout.tied && parallel.tie() != nullptr;
          stage.gradients()[p.offset + local + i] = value * share * (two ? 0.5 : 1);
        }
      });
    }
  }

  Memory memory;
  Parallel parallel;
  Stage<double> stage;
  Optimizer<double> optimizer;
};

// ||g|| over all logical elements of step `step`, straight from the definition.
double norm_by_definition(std::uint64_t step) {
  double sum = 0;
  for (const Parameter& p : whole_parameters(test::optimizer_config())) {
    const Philox random(step, static_cast<std::uint32_t>(p.index));
    for (std::int64_t i = 0; i < p.slice.logical_count(); ++i) {
      const auto value = static_cast<double>(random.normal(static_cast<std::uint64_t>(i)));
      sum += value * value;
    }
  }
  return std::sqrt(sum);
}

struct Grid {
  sched::PerAxis sizes;
  int zero;
  int shard = 0;
};
const Grid kGrids[] = {
    {{1, 1, 1, 1}, 0},    {{2, 1, 1, 1}, 0},    {{1, 1, 2, 1}, 0},    {{1, 1, 1, 3}, 0},
    {{1, 1, 1, 3}, 1},    {{1, 1, 1, 5}, 1},    {{2, 1, 2, 2}, 0},    {{2, 1, 2, 2}, 1},
    {{1, 1, 2, 3}, 1},    {{1, 1, 1, 7}, 1},    {{1, 1, 1, 4}, 1, 2}, {{1, 1, 1, 6}, 1, 3},
    {{2, 1, 1, 4}, 1, 2}, {{1, 1, 2, 4}, 1, 1},
};

TEST(Optimizer, TheNormCountsEveryLogicalElementOnceOnEveryGridAndIsTheSameOnAllRanks) {
  const double expected = norm_by_definition(40);
  for (const Grid& grid : kGrids) {
    const int world = grid.sizes.tp * grid.sizes.pp * grid.sizes.dp;
    test::run_ranks(world, [&](comm::Communicator& ranks) {
      Rank rank(ranks, grid.sizes, {.zero = grid.zero}, grid.shard);
      rank.write_gradients(40);
      rank.optimizer.reduce_gradients();
      EXPECT_NEAR(rank.optimizer.step(1e-3).gradient_norm, expected, 1e-12 * expected);
    });
  }
}

TEST(Optimizer, ZeroOnAnyNumberOfRanksMovesTheWeightsOfOneRank) {
  std::vector<double> one;
  for (const Grid& grid : kGrids) {
    if (grid.sizes.tp > 1 || grid.sizes.pp > 1) continue;
    test::run_ranks(grid.sizes.dp, [&](comm::Communicator& ranks) {
      Rank rank(ranks, grid.sizes, {.clip = 1.0, .zero = grid.zero}, grid.shard);
      for (std::uint64_t step = 0; step < 3; ++step) {
        rank.write_gradients(step);
        rank.optimizer.reduce_gradients();
        EXPECT_FALSE(rank.optimizer.step(1e-2).skipped);
      }
      std::vector<double> weights;
      for (const Parameter& p : rank.stage.parameters()) {
        const double* first = rank.stage.weights() + p.offset;
        weights.insert(weights.end(), first, first + p.slice.local_count());
      }
      if (grid.sizes.dp == 1) one = weights;
      ASSERT_EQ(weights.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(weights[i], one[i], 1e-13);
    });
  }
}

// One element of plain AdamW by hand: clipping scales the gradient, decay spares vectors.
TEST(Optimizer, ClippingIsAppliedAndDecaySparesVectors) {
  test::run_ranks(1, [](comm::Communicator& ranks) {
    const OptimizerOptions options{.weight_decay = 0.5, .clip = 1.0};
    Rank rank(ranks, {1, 1, 1, 1}, options);
    rank.write_gradients(9);
    const double coefficient = 1.0 / (norm_by_definition(9) + 1e-6);
    const double lr = 0.1;
    std::vector<double> expected;
    for (const Parameter& p : rank.stage.parameters()) {
      const double w = rank.stage.weights()[p.offset];
      const double g = rank.stage.gradients()[p.offset] * coefficient;
      // After one step both bias corrections undo their (1 - beta).
      expected.push_back(w - lr * (g / (std::abs(g) + options.epsilon) +
                                   (p.shape.size() >= 2 ? options.weight_decay * w : 0)));
    }
    rank.optimizer.reduce_gradients();
    static_cast<void>(rank.optimizer.step(lr));
    std::size_t i = 0;
    for (const Parameter& p : rank.stage.parameters())
      EXPECT_NEAR(rank.stage.weights()[p.offset], expected[i++], 1e-13) << p.name;
  });
}

TEST(Optimizer, AGradientThatIsNotFiniteSkipsTheWholeStepAndNamesRankAndTensor) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const Grid& grid : kGrids) {
      const int world = grid.sizes.tp * grid.sizes.pp * grid.sizes.dp;
      const int culprit = world - 1;  // the last data-parallel rank of the last stage
      test::run_ranks(world, [&](comm::Communicator& ranks) {
        Rank rank(ranks, grid.sizes, {.zero = grid.zero}, grid.shard);
        rank.write_gradients(1);
        rank.optimizer.reduce_gradients();
        static_cast<void>(rank.optimizer.step(1e-2));  // so that moments are not zero
        const auto copy = [&](const double* data) {
          return std::vector<double>(data, data + rank.optimizer.owned().back().state_begin +
                                               rank.optimizer.owned().back().count);
        };
        const std::vector<double> weights(rank.stage.weights(),
                                          rank.stage.weights() + rank.stage.count());
        const std::vector<double> first = copy(rank.optimizer.first_moment());
        const std::vector<double> second = copy(rank.optimizer.second_moment());

        rank.write_gradients(2);
        for (const Parameter& p : rank.stage.parameters()) {
          if (p.name == "h.1.mlp.c_fc.weight" && ranks.rank() == culprit)
            rank.stage.gradients()[p.offset + 3] = bad;
        }
        rank.optimizer.reduce_gradients();
        const StepReport report = rank.optimizer.step(1e-2);
        EXPECT_TRUE(report.skipped);
        EXPECT_EQ(report.bad_tensor, "h.1.mlp.c_fc.weight");
        EXPECT_EQ(report.bad_rank, culprit);
        EXPECT_EQ(rank.optimizer.steps_taken(), 1);
        EXPECT_EQ(
            std::vector<double>(rank.stage.weights(), rank.stage.weights() + rank.stage.count()),
            weights);
        EXPECT_EQ(copy(rank.optimizer.first_moment()), first);
        EXPECT_EQ(copy(rank.optimizer.second_moment()), second);
      });
    }
  }
}

TEST(LearningRate, WarmsUpLinearlyAndEndsAtTheMinimum) {
  const LearningRate rate{.lr = 1.0, .min_lr = 0.1, .warmup = 4, .steps = 14};
  EXPECT_DOUBLE_EQ(rate.at(0), 0.25);
  EXPECT_DOUBLE_EQ(rate.at(3), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(4), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(9), 0.55);
  EXPECT_NEAR(rate.at(14), 0.1, 1e-15);
  EXPECT_NEAR(rate.at(99), 0.1, 1e-15);
  for (std::int64_t step = 4; step < 14; ++step) EXPECT_GT(rate.at(step), rate.at(step + 1));
}

}  // namespace
}  // namespace sinew::model
