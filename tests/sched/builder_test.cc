// Laws of what Builder::finish returns, whatever the calls were: random legal calls, seeded.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sched/builder.h"
#include "sched/matching.h"
#include "sched/order.h"
#include "sched/verify.h"
#include "sched/verify_steps.h"

namespace sinew::sched {
namespace {

// Random moves: every rank may send any chunks it has to any other one. The values mean nothing;
// the schedule must still have form, matching messages, no race and no deadlock.
Schedule random_schedule(std::uint32_t seed, std::optional<int> keep) {
  std::mt19937 random(seed);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  Contract contract;
  contract.op =
      std::vector{Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                  Collective::kBroadcast, Collective::kReduce}[static_cast<std::size_t>(below(5))];
  contract.world = 2 + below(5);
  contract.root = contract.rooted() ? below(contract.world) : 0;
  contract.chunks_per_block = 1 + below(4);
  Builder b(contract, keep);
  // Which chunks each rank has a value of.
  std::vector<std::vector<bool>> has(static_cast<std::size_t>(contract.world));
  for (int rank = 0; rank < contract.world; ++rank) {
    for (int chunk = 0; chunk < contract.chunks(); ++chunk) {
      has[static_cast<std::size_t>(rank)].push_back(contract.has_input(rank, chunk));
    }
  }
  for (int call = below(30); call > 0; --call) {
    Move move;
    move.from = below(contract.world);
    move.to = (move.from + 1 + below(contract.world - 1)) % contract.world;
    move.chunk = below(contract.chunks());
    move.chunks = 1 + below(contract.chunks());
    move.lane = below(2);
    const bool reduces = below(2) == 0;
    std::vector<bool>& from = has[static_cast<std::size_t>(move.from)];
    std::vector<bool>& to = has[static_cast<std::size_t>(move.to)];
    bool legal = true;
    for (int i = 0; i < move.chunks; ++i) {
      const auto chunk = static_cast<std::size_t>((move.chunk + i) % contract.chunks());
      legal = legal && from[chunk] && (!reduces || to[chunk]);
    }
    if (!legal) continue;
    for (int i = 0; i < move.chunks; ++i) {
      to[static_cast<std::size_t>((move.chunk + i) % contract.chunks())] = true;
    }
    if (reduces) {
      b.reduce(move);
    } else {
      b.copy(move);
    }
  }
  return b.finish("random");
}

constexpr std::uint32_t kSeeds = 2000;

TEST(Builder, AnyLegalCallsGiveFormMatchedMessagesNoRaceAndNoDeadlock) {
  for (std::uint32_t seed = 1; seed <= kSeeds; ++seed) {
    const Schedule schedule = random_schedule(seed, std::nullopt);
    const Finding form = check_form(schedule);
    ASSERT_EQ(form.failure, "") << "seed " << seed << "\n" << print(schedule);
    const Matching matching = match(schedule);
    ASSERT_EQ(check_messages(schedule, matching).failure, "") << "seed " << seed;
    ASSERT_EQ(check_races(schedule).failure, "") << "seed " << seed << "\n" << print(schedule);
    ASSERT_TRUE(order_steps(schedule, matching, {}).completes()) << "seed " << seed;
    // Nothing is read before it was written; what is reduced may well be nonsense.
    const std::string failure = verify(schedule).failure;
    EXPECT_EQ(failure.find("reads"), std::string::npos) << "seed " << seed << ": " << failure;
  }
}

TEST(Builder, NoDependenceIsImpliedByAnother) {
  for (std::uint32_t seed = 1; seed <= kSeeds; ++seed) {
    for (const Program& program : random_schedule(seed, std::nullopt).programs) {
      std::vector<std::set<std::uint32_t>> waits;
      std::size_t next = 0;
      for (const Step& step : program.steps) {
        std::set<std::uint32_t> own;
        for (int d = 0; d < step.dependences; ++d) own.insert(program.dependences[next++]);
        EXPECT_EQ(own.size(), step.dependences) << "seed " << seed;
        for (const std::uint32_t wait : own) {
          for (const std::uint32_t earlier : waits[wait]) {
            EXPECT_FALSE(own.contains(earlier)) << "seed " << seed;
          }
        }
        waits.push_back(std::move(own));
      }
    }
  }
}

TEST(Builder, ASendStandsAsEarlyAsItsDependencesAndTheSendsBeforeItAllow) {
  for (std::uint32_t seed = 1; seed <= kSeeds; ++seed) {
    for (const Program& program : random_schedule(seed, std::nullopt).programs) {
      std::size_t next = 0;
      for (std::size_t i = 0; i < program.steps.size(); ++i) {
        const Step& step = program.steps[i];
        std::size_t last = 0;  // one past the last step this one has to follow
        for (int d = 0; d < step.dependences; ++d) {
          last = std::max(last, std::size_t{program.dependences[next++]} + 1);
        }
        const bool alone =
            step.joined == 0 && (i + 1 == program.steps.size() || program.steps[i + 1].joined == 0);
        if (step.verb != Verb::kSend || !alone || i == 0) continue;
        // The step before it is why it does not stand earlier: a dependence, another send, or a
        // part of a message that must stay whole.
        const Step& before = program.steps[i - 1];
        EXPECT_TRUE(last == i || before.verb == Verb::kSend || before.joined != 0)
            << "seed " << seed << "\n"
            << describe(step);
      }
    }
  }
}

TEST(Builder, KeepingOneRankGivesItsProgram) {
  for (std::uint32_t seed = 1; seed <= kSeeds / 10; ++seed) {
    const Schedule all = random_schedule(seed, std::nullopt);
    for (int rank = 0; rank < all.contract.world; ++rank) {
      const Schedule one = random_schedule(seed, rank);
      for (int other = 0; other < all.contract.world; ++other) {
        const auto at = static_cast<std::size_t>(other);
        EXPECT_EQ(one.programs[at], other == rank ? all.programs[at] : Program{})
            << "seed " << seed;
      }
    }
  }
}

TEST(Builder, ScratchOfConsecutiveChunksIsConsecutive) {
  // Rank 1 collects chunks in a mixed order and passes them all on.
  Builder gather({.op = Collective::kGather, .world = 4, .root = 3, .chunks_per_block = 1});
  gather.copy({.chunk = 2, .from = 2, .to = 1});
  gather.copy({.chunk = 0, .from = 0, .to = 1});
  gather.copy({.chunk = 0, .chunks = 3, .from = 1, .to = 3});
  const Schedule schedule = gather.finish("gather");
  EXPECT_EQ(verify(schedule).failure, "");
  const Program& relay = schedule.programs[1];
  EXPECT_EQ(relay.scratch_chunk, (std::vector<std::uint32_t>{0, 1, 2}));
  ASSERT_EQ(relay.steps.back().verb, Verb::kSend);
  EXPECT_EQ(relay.steps.back().chunks, 3);
  EXPECT_EQ(relay.steps.back().source, Slot::of(Space::kScratch, 0));
}

TEST(Builder, ARangeThatWrapsIsOneJoinedMessage) {
  Builder b({.op = Collective::kAllReduce, .world = 2, .root = 0, .chunks_per_block = 4});
  b.copy({.chunk = 3, .chunks = 2, .from = 0, .to = 1});
  const Schedule schedule = b.finish("wrap");
  const std::vector<Step>& steps = schedule.programs[0].steps;
  ASSERT_GE(steps.size(), 2U);
  EXPECT_EQ(describe(steps[0]), "send input[3] to 1");
  EXPECT_EQ(describe(steps[1]), "send input[0] to 1");
  EXPECT_EQ(steps[0].joined, 0);
  EXPECT_EQ(steps[1].joined, 1);
}

TEST(Builder, TheAsideKeepsAnOrderOfSummation) {
  Builder b({.op = Collective::kReduce, .world = 3, .root = 2});
  const Builder::Message from0 = b.post({.chunk = 0, .from = 0, .to = 2});
  const Builder::Message from1 = b.post({.chunk = 0, .from = 1, .to = 2});
  b.receive_aside(from0);
  b.reduce_aside(from1);
  b.fold(2, 0, 1);
  const Schedule schedule = b.finish("ordered");
  EXPECT_EQ(verify(schedule).failure, "");
  const std::vector<Step>& steps = schedule.programs[2].steps;
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(describe(steps[0]), "recv scratch[0] <- message of 0");
  EXPECT_EQ(describe(steps[1]), "recv_reduce scratch[0] <- scratch[0] + message of 1");
  EXPECT_EQ(describe(steps[2]), "reduce scratch[0] <- scratch[0] + input[0]");
  EXPECT_EQ(describe(steps[3]), "copy output[0] <- scratch[0]");
}

using BuilderDeathTest = testing::Test;

TEST(BuilderDeathTest, CatchesMistakesOfAnAlgorithm) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Contract contract{.op = Collective::kBroadcast, .world = 3, .root = 0};
  EXPECT_DEATH(
      {
        Builder b(contract);
        b.copy({.chunk = 0, .from = 1, .to = 2});
      },
      "check failed");  // rank 1 has nothing yet
  EXPECT_DEATH(
      {
        Builder b(contract);
        b.copy({.chunk = 0, .from = 0, .to = 0});
      },
      "check failed");
  EXPECT_DEATH(
      {
        Builder b(contract);
        (void)b.post({.chunk = 0, .from = 0, .to = 1});
        (void)b.finish("half");
      },
      "check failed");  // posted, never received
}

}  // namespace
}  // namespace sinew::sched
