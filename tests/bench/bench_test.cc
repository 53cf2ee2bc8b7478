// Laws of the bench harness: cases whose results are exact in every order, quantiles, sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "bench/bound.h"
#include "bench/collective_case.h"
#include "bench/link_model.h"
#include "bench/repeat.h"
#include "kernels/element.h"
#include "kernels/reduce.h"

namespace sinew::bench {
namespace {

using sched::Collective;

template <typename T>
T stored(double value) {
  return kernels::narrow<T>(static_cast<kernels::Wide<T>>(value));
}

// One element of each of the world's ranks, folded in the order given by the kernel that
// collectives use.
template <typename T>
T fold(const CollectiveShape& shape, std::int64_t index, const std::vector<int>& order) {
  T result = stored<T>(input_value(shape, order[0], index));
  for (std::size_t i = 1; i < order.size(); ++i) {
    const T value = stored<T>(input_value(shape, order[i], index));
    kernels::reduce(shape.reduce, shape.dtype, &result, &result, &value, 1);
  }
  if (shape.reduce == ReduceOp::kAvg) kernels::scale(shape.dtype, &result, 1, shape.world);
  return result;
}

TEST(CollectiveCase, ResultIsTheSameBitsInAnyOrderForEveryTypeReductionAndWorld) {
  std::mt19937 random(7);
  for (const DTypeInfo& dtype : kDTypes) {
    for (const ReduceOpInfo& reduce : kReduceOps) {
      for (const int world : {1, 2, 3, 5, 8, 13, 64}) {
        const CollectiveShape shape = {
            .dtype = dtype.dtype, .reduce = reduce.op, .count = 20, .world = world};
        std::vector<int> order(static_cast<std::size_t>(world));
        std::iota(order.begin(), order.end(), 0);
        for (std::int64_t index = 0; index < shape.count; ++index) {
          std::shuffle(order.begin(), order.end(), random);
          visit(dtype.dtype, [&](auto zero) {
            using T = decltype(zero);
            const T folded = fold<T>(shape, index, order);
            const T expected = stored<T>(reduced_value(shape, index));
            EXPECT_EQ(std::memcmp(&folded, &expected, sizeof(T)), 0)
                << dtype.name << " " << reduce.name << " world " << world << " index " << index;
          });
        }
      }
    }
  }
}

TEST(CollectiveCase, MemoryOfEitherKindIsFilledBeforeAnythingRunsOnIt) {
  comm::Communicator::run_threads(2, {}, [](comm::Communicator& communicator) {
    const CollectiveShape shape = {
        .count = 5000, .world = communicator.world(), .rank = communicator.rank()};
    for (const auto buffers :
         {CollectiveCase::Buffers::kPlain, CollectiveCase::Buffers::kSymmetric}) {
      CollectiveCase made(communicator, shape, buffers);
      const auto* input = static_cast<const float*>(made.input());
      for (std::int64_t i = 0; i < shape.count; ++i)
        ASSERT_EQ(input[i], input_value(shape, shape.rank, i)) << i;
      made.run("two_shot");
      EXPECT_EQ(made.count_wrong(), 0);
    }
  });
}

TEST(CollectiveCase, InputsDifferBetweenRanksAndIndices) {
  const CollectiveShape shape = {.dtype = DType::kF32, .count = 100, .world = 4};
  int equal = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    equal += input_value(shape, 0, i) == input_value(shape, 1, i) ? 1 : 0;
    equal += input_value(shape, 0, i) == input_value(shape, 0, i + 1) ? 1 : 0;
  }
  EXPECT_LT(equal, 5);
}

TEST(CollectiveCase, CountFillsTheBytesAskedForAndNoMore) {
  for (const Collective op :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBroadcast, Collective::kReduce}) {
    for (const int world : {1, 2, 3, 8}) {
      for (const std::int64_t bytes : {0, 1, 8, 100, 1 << 20}) {
        CollectiveShape shape = {.op = op, .dtype = DType::kF32, .world = world};
        shape.count = count_for_bytes(op, shape.dtype, world, bytes);
        CollectiveShape larger = shape;
        ++larger.count;
        EXPECT_GT(larger.full_bytes(), bytes);
        EXPECT_TRUE(shape.count <= 1 || shape.full_bytes() <= bytes);
        EXPECT_EQ(shape.count == 0, bytes == 0);
      }
    }
  }
}

TEST(CollectiveShape, PartsCoverTheVectorAndEveryElementHasItsOwner) {
  for (const Parts parts : {Parts::kEven, Parts::kRamp, Parts::kOne}) {
    for (const int world : {1, 2, 3, 8}) {
      for (const std::int64_t count : {1, 5, 64}) {
        const CollectiveShape shape = {
            .op = Collective::kAllGather, .count = count, .world = world, .parts = parts};
        EXPECT_EQ(shape.part_begin(0), 0);
        EXPECT_EQ(shape.part_begin(world), shape.full_count());
        for (int r = 0; r < world; ++r) {
          ASSERT_GE(shape.part(r), 0);
          for (std::int64_t i = shape.part_begin(r); i < shape.part_begin(r + 1); ++i)
            ASSERT_EQ(shape.owner(i), r) << name_of(parts) << " world " << world << " index " << i;
        }
      }
    }
  }
}

TEST(Repeat, QuantilesAreSamples) {
  std::vector<double> samples(100);
  std::iota(samples.begin(), samples.end(), 1.0);
  std::reverse(samples.begin(), samples.end());
  const Times times = summarize(samples, 1);
  EXPECT_EQ(times.min_s, 1);
  EXPECT_EQ(times.median_s, 50);
  EXPECT_EQ(times.p99_s, 99);
  std::vector<double> one = {4.0};
  EXPECT_EQ(summarize(one, 1).p99_s, 4.0);
}

// A call behind a barrier and a call that follows its like are different things to measure.
TEST(Repeat, AllCandidatesHaveBatchesOfOneLength) {
  comm::Communicator::run_threads(1, {}, [](comm::Communicator& communicator) {
    const std::function<void()> short_call = [] {};
    const std::function<void()> long_call = [] {
      const auto begin = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(20)) {
      }
    };
    for (const auto& candidates : {std::vector{short_call, long_call}, {long_call, short_call}}) {
      const std::vector<Times> times =
          time_candidates(communicator, candidates, {.budget_s = 1e-6, .iterations_min = 1});
      EXPECT_GT(times[0].batch, 1);
      EXPECT_EQ(times[0].batch, times[1].batch);
    }
  });
}

// The calls that are estimated are quick and the others a thousand times as slow, as on a machine
// that other work keeps busy.
TEST(Repeat, CallsThatTakeFarMoreThanTheirEstimateAreCutShort) {
  for (const int asked : {0, 200}) {
    comm::Communicator::run_threads(2, {}, [&](comm::Communicator& communicator) {
      int calls = 0;
      const std::function<void()> work = [&] {
        const auto slow = std::chrono::microseconds(++calls > 4 ? 100 : 0);
        const auto begin = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - begin < slow) {
        }
        communicator.barrier();
      };
      const Times times =
          time_candidates(communicator, {&work, 1}, {.budget_s = 0.002, .calls = asked}).front();
      if (asked > 0) {
        EXPECT_EQ(times.iterations * times.batch, asked);
      } else {
        EXPECT_GE(times.iterations, RepeatOptions{}.iterations_min);
        EXPECT_LT(times.iterations, 40);  // the estimate is of hundreds
      }
    });
  }
}

TEST(Repeat, LongCallsAreTimedLessOften) {
  comm::Communicator::run_threads(1, {}, [](comm::Communicator& communicator) {
    int calls = 0;
    const std::function<void()> work = [&] {
      ++calls;
      const auto begin = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(2)) {
      }
    };
    const Times times =
        time_candidates(communicator, {&work, 1}, {.budget_s = 1e-3, .patience_s = 0.02}).front();
    EXPECT_GE(times.iterations, 3);
    EXPECT_LE(times.iterations, 10);         // by what they take at least
    EXPECT_EQ(calls, times.iterations + 2);  // one to warm up, one to estimate, none before a block
  });
}

TEST(LinkModel, WhatIsTimedBetweenManyRanksIsBounded) {
  EXPECT_EQ(message_sizes(8).size(), message_sizes(2).size());
  for (int world = 2; world <= 1024; ++world) {
    const std::span<const std::int64_t> sizes = message_sizes(world);
    ASSERT_GE(sizes.size(), 2U);
    EXPECT_LE(sizes.size(), message_sizes(2).size());
    if (sizes.size() > 2) {
      EXPECT_LE(sizes.back() * world * (world - 1), std::int64_t{512} << 20) << world;
    }
  }
}

TEST(LinkModel, UniformLinksGiveTheClosedFormsThreeTerms) {
  const LinkModel links = LinkModel::uniform(2e-6, 1e-10, 3e-11);
  EXPECT_DOUBLE_EQ(links.alpha_s(), 2e-6);
  EXPECT_NEAR(links.least.beta_s_per_byte, 1e-10, 1e-16);
  for (const double bytes : {0.0, 8.0, 1e3, 1e6, 1e9}) {
    const sched::Cost cost = {.rounds = 6, .bytes = 1.5, .reduced = 0.75};
    const double sum = 6 * 2e-6 + 1.5 * bytes * 1e-10 + 0.75 * bytes * 3e-11;
    EXPECT_NEAR(predicted_s(cost, bytes, links), sum, 1e-9 * sum);
  }
}

TEST(LinkModel, MessagesAreInterpolatedBetweenMeasuredSizes) {
  const LinkModel links = {{{8, 1.0}, {100, 2.0}, {200, 5.0}}, 0};
  EXPECT_EQ(links.message_s(0), 1.0);
  EXPECT_EQ(links.message_s(8), 1.0);
  EXPECT_EQ(links.message_s(54), 1.5);
  EXPECT_EQ(links.message_s(150), 3.5);
  EXPECT_EQ(links.message_s(300), 8.0);
}

TEST(Bound, IsAtMostTheClosedFormOfEveryAlgorithm) {
  for (const sched::Algorithm& row : sched::algorithms()) {
    for (int world = 1; world <= 64; ++world) {
      const sched::Params params = {.world = world};
      if (!row.refuse(params).empty()) continue;
      const sched::Cost cost = row.cost(params);
      const sched::Cost bound = lower_bound(row.op, world);
      EXPECT_GE(cost.rounds, bound.rounds - 1e-9)
          << sched::name_of(row.op) << " " << row.name << " world " << world;
      EXPECT_GE(cost.bytes, bound.bytes - 1e-9)
          << sched::name_of(row.op) << " " << row.name << " world " << world;
      EXPECT_GE(cost.reduced, bound.reduced - 1e-9)
          << sched::name_of(row.op) << " " << row.name << " world " << world;
    }
  }
}

}  // namespace
}  // namespace sinew::bench
