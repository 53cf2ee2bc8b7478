// verify names what is wrong, each kind of fault on the smallest schedule that has it.
#include <gtest/gtest.h>

#include <string>

#include "sched/collective/registry.h"
#include "sched/matching.h"
#include "sched/order.h"
#include "sched/verify.h"

namespace sinew::sched {
namespace {

std::string failure_of(const std::string& text) { return verify(parse_schedule(text)).failure; }

void expect_failure(const std::string& text, const std::string& part) {
  const std::string failure = failure_of(text);
  EXPECT_NE(failure.find(part), std::string::npos) << failure << "\nfor\n" << text;
  EXPECT_EQ(failure.find('\n'), std::string::npos) << failure;
}

constexpr const char* kAllReduce =
    "schedule hand\ncontract all_reduce world 2 root 0 chunks_per_block 1 segments 0\n";
constexpr const char* kBroadcast =
    "schedule hand\ncontract broadcast world 2 root 0 chunks_per_block 1 segments 0\n";

std::string all_reduce(const std::string& programs) { return kAllReduce + programs; }
std::string broadcast(const std::string& programs) { return kBroadcast + programs; }

const char* const kExchange =
    "rank 0\nsend 1 0 1 input[0] input[0]\nrecv_reduce 1 0 1 input[0] output[0] 0\n"
    "rank 1\nsend 0 0 1 input[0] input[0]\nrecv_reduce 0 0 1 input[0] output[0] 0\n";

TEST(Verify, ProvesAnExchangeAndCountsIt) {
  const Verdict verdict = verify(parse_schedule(all_reduce(kExchange)));
  ASSERT_TRUE(verdict.proved()) << verdict.failure;
  EXPECT_EQ(verdict.facts.credits, 1);  // both send before they receive where they sent from
  EXPECT_EQ(verdict.facts.credits_in_order, 1);
  EXPECT_TRUE(verdict.facts.same_expression);
  EXPECT_EQ(verdict.facts.cost.rounds, 1);
  EXPECT_EQ(verdict.facts.cost.bytes, 1);
  EXPECT_EQ(verdict.facts.cost.reduced, 1);
  EXPECT_EQ(verdict.facts.sent, 1);
  EXPECT_EQ(verdict.facts.messages, 1);
}

TEST(Verify, AnEmptyWorldOfOneStillHasToCopyItsInput) {
  const std::string contract =
      "schedule hand\ncontract all_reduce world 1 root 0 chunks_per_block 1 segments 0\nrank 0\n";
  expect_failure(contract, "rank 0 ends with nothing in output[0], expected chunk 0 of rank 0");
  EXPECT_EQ(failure_of(contract + "copy 0 0 1 input[0] output[0]\n"), "");
}

TEST(Verify, FindsFaultsOfForm) {
  expect_failure(broadcast("rank 0\ncopy 0 0 1 output[0] input[0]\nrank 1\n"), "writes the input");
  expect_failure(broadcast("rank 0\nrank 1\ncopy 1 0 1 input[0] output[0]\n"),
                 "uses input[0], which this rank has not");
  expect_failure(broadcast("rank 0\nsend 0 0 1 input[0] input[0]\nrank 1\n"), "message to itself");
  expect_failure(broadcast("rank 0\ncopy 1 0 1 input[0] output[0]\nrank 1\n"),
                 "is local and names another rank");
  expect_failure(broadcast("rank 0\nsend 1 0 1 input[0] output[0]\nrank 1\n"), "two slots");
  expect_failure(broadcast("rank 0\nsend 1 0+ 1 input[0] input[0]\nrank 1\n"), "is joined");
  expect_failure(
      "schedule hand\ncontract broadcast world 2 root 0 chunks_per_block 3 segments 0\n"
      "rank 0\nscratch 0 1 2\ncopy 0 0 2 input[0] scratch[0]\n"
      "copy 0 0 2 scratch[0] scratch[1]\nrank 1\n",
      "different sizes");
  expect_failure(
      "schedule hand\ncontract broadcast world 2 root 0 chunks_per_block 3 segments 0\n"
      "rank 0\nscratch 0 0 0\ncopy 0 0 1 input[0] scratch[0]\n"
      "copy 0 0 2 scratch[0] scratch[1]\nrank 1\n",
      "ranges that overlap");
}

TEST(Verify, FindsUnmatchedAndUnequalMessages) {
  expect_failure(
      broadcast("rank 0\nsend 1 0 1 input[0] input[0]\ncopy 0 0 1 input[0] output[0]\n"
                "rank 1\n"),
      "rank 0 step 0 sends to rank 1 on lane 0: message 0 of that lane is never received");
  expect_failure(
      broadcast("rank 0\ncopy 0 0 1 input[0] output[0]\nrank 1\n"
                "recv 0 1 1 output[0] output[0]\n"),
      "rank 1 step 0 receives from rank 0 on lane 1: message 0 of that lane is never sent");
  expect_failure(
      "schedule hand\ncontract broadcast world 2 root 0 chunks_per_block 2 segments 0\n"
      "rank 0\nsend 1 0 2 input[0] input[0]\nrank 1\nrecv 0 0 1 output[0] output[0]\n",
      "not the same message");
}

TEST(Verify, FindsRaces) {
  // Rank 0 overwrites, in place, what it may still be sending.
  std::string text = kExchange;
  text.replace(text.find("output[0] 0\n"), 12, "output[0]\n");
  expect_failure(all_reduce(text), "rank 0 steps 0 and 1 race on output[0]");
  // Two receives of one lane may complete in any order.
  expect_failure(
      broadcast("rank 0\nsend 1 0 1 input[0] input[0]\nsend 1 0 1 input[0] input[0]\n"
                "copy 0 0 1 input[0] output[0] 0 1\n"
                "rank 1\nrecv 0 0 1 output[0] output[0]\nrecv 0 0 1 output[0] output[0]\n"),
      "rank 1 steps 0 and 1 race on output[0]");
}

TEST(Verify, FindsDeadlocks) {
  // Each rank receives before it sends what it received.
  expect_failure(
      "schedule hand\ncontract barrier world 2 root 0 chunks_per_block 1 segments 0\n"
      "rank 0\nrecv 1 0 1 output[0] output[0]\nsend 1 0 1 output[0] output[0] 0\n"
      "rank 1\nrecv 0 0 1 output[0] output[0]\nsend 0 0 1 output[0] output[0] 0\n",
      "deadlock: rank");
}

TEST(Verify, FindsReadsOfNothing) {
  expect_failure(broadcast("rank 0\nsend 1 0 1 output[0] output[0]\nrank 1\n"
                           "recv 0 0 1 output[0] output[0]\n"),
                 "rank 0 step 0 reads output[0], to which nothing was written before");
  expect_failure(broadcast("rank 0\ncopy 0 0 1 input[0] output[0]\nsend 1 0 1 input[0] input[0] 0\n"
                           "rank 1\nrecv 0 0 1 output[0] output[0]\n"),
                 "rank 0 step 1 reads input[0], which is gone in place");
}

TEST(Verify, FindsWrongResults) {
  expect_failure(
      all_reduce("rank 0\nsend 1 0 1 input[0] input[0]\nrecv 1 0 1 output[0] output[0] 0\n"
                 "rank 1\nsend 0 0 1 input[0] input[0]\n"
                 "recv_reduce 0 0 1 input[0] output[0] 0\n"),
      "rank 0 ends with chunk 0 of rank 1 in output[0], expected chunk 0 of ranks 0-1");
  expect_failure(all_reduce("rank 0\nscratch 0\nsend 1 0 1 input[0] input[0]\n"
                            "copy 0 0 1 input[0] scratch[0]\n"
                            "recv_reduce 1 0 1 scratch[0] output[0] 0 1\n"
                            "reduce 0 0 1 scratch[0] output[0] 2\n"
                            "rank 1\nsend 0 0 1 input[0] input[0]\n"
                            "recv_reduce 0 0 1 input[0] output[0] 0\n"),
                 "rank 0 step 3 counts a rank twice");
}

// x0 + (x1 + x2) on rank 0, (x0 + x1) + x2 on the others.
TEST(Verify, FindsAnAllReduceWhoseRanksGroupDifferently) {
  expect_failure(
      "schedule hand\ncontract all_reduce world 3 root 0 chunks_per_block 1 segments 0\n"
      "rank 0\nsend 1 0 1 input[0] input[0]\nrecv_reduce 1 0 1 input[0] output[0] 0\n"
      "rank 1\nscratch 0\nrecv 2 0 1 scratch[0] scratch[0]\nreduce 1 0 1 input[0] scratch[0] 0\n"
      "send 0 0 1 scratch[0] scratch[0] 1\nrecv_reduce 0 0 1 input[0] output[0] 1\n"
      "recv_reduce 2 0 1 output[0] output[0] 3\nsend 2 0 1 output[0] output[0] 4\n"
      "rank 2\nsend 1 0 1 input[0] input[0]\nsend 1 0 1 input[0] input[0]\n"
      "recv 1 0 1 output[0] output[0] 0 1\n",
      "ranks 0 and 1 reduce chunk 0 in different groupings");
}

TEST(Verify, DrawsTheStepsAroundAFailure) {
  std::string text = kExchange;
  text.replace(text.find("output[0] 0\n"), 12, "output[0]\n");
  EXPECT_EQ(
      verify(parse_schedule(all_reduce(text))).drawing,
      "rank 0\n"
      "  >    0  send input[0] to 1    <- either may be first\n"
      "       1  recv_reduce output[0] <- input[0] + message of 1\n"
      "rank 0\n"
      "       0  send input[0] to 1\n"
      "  >    1  recv_reduce output[0] <- input[0] + message of 1    <- either may be first\n");
}

TEST(Verify, AcceptsNoScheduleOfOneRankOnly) {
  const Algorithm& ring = find_algorithm(Collective::kAllReduce, "ring");
  EXPECT_FALSE(verify(generate(ring, {.world = 4}, 2)).proved());
}

// Buffering only ever helps, so the least amounts are thresholds; and what verify reports is the
// threshold.
TEST(Order, MoreCreditsAndMoreWindowNeverDeadlockAndFewerThanTheLeastDo) {
  for (const Algorithm& row : algorithms()) {
    for (const int world : {2, 3, 4, 6, 8}) {
      const Params params = {.world = world};
      if (!row.refuse(params).empty()) continue;
      const Schedule schedule = generate(row, params);
      const Matching matching = match(schedule);
      const auto completes = [&](int credits, int window) {
        return order_steps(schedule, matching, {credits, window}).completes();
      };
      for (const int window : {1, 2, 3, kUnlimited}) {
        const int least = least_credits(schedule, matching, window);
        EXPECT_TRUE(least == 0 || !completes(least - 1, window)) << row.name << " " << world;
        for (int more = 0; more < 3; ++more) EXPECT_TRUE(completes(least + more, window));
      }
      const int window = least_window(schedule, matching);
      if (window == kUnlimited) continue;
      EXPECT_TRUE(window == 1 || !completes(0, window - 1)) << row.name << " " << world;
      EXPECT_TRUE(completes(0, window + 1)) << row.name << " " << world;
    }
  }
}

}  // namespace
}  // namespace sinew::sched
