// The proof of pipeline schedules is worth what it refuses: every mutant of every row must be
// killed, and each kind of failure is shown with the actions that make it.
#include <gtest/gtest.h>

#include <algorithm>

#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/passes/communication.h"
#include "sched/pipeline/schedule.h"
#include "sched/pipeline/streams.h"
#include "sched/pipeline/verify.h"

namespace sinew::sched {
namespace {

std::vector<PipeSchedule> small_schedules() {
  std::vector<PipeSchedule> all;
  for (const PipeAlgorithm& algorithm : pipe_algorithms()) {
    for (int p = 1; p <= 3; ++p) {
      for (int m = 1; m <= 3; ++m)
        all.push_back(generate(algorithm, {p, algorithm.default_chunks, m}));
    }
  }
  return all;
}

// Calls `mutate(schedule, program, index)` on a copy for each action of each small schedule.
template <typename Mutate>
int for_every_action(Mutate mutate) {
  int mutants = 0;
  for (const PipeSchedule& schedule : small_schedules()) {
    for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
      for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
        PipeSchedule mutant = schedule;
        mutants += mutate(mutant, mutant.actions[rank], i);
      }
    }
  }
  return mutants;
}

void expect_killed(const PipeSchedule& mutant, const std::string& what) {
  const PipeVerdict verdict = verify(mutant);
  EXPECT_FALSE(verdict.proved()) << what << " survives in\n" << print(mutant);
  EXPECT_EQ(verdict.failure.find('\n'), std::string::npos);
}

using Program = std::vector<PipeAction>;

TEST(PipeMutants, DroppedActionsAreKilled) {
  EXPECT_GT(
      for_every_action([](const PipeSchedule& mutant, Program& program, std::size_t i) {
        // Without its only W, the B of a schedule of one cell is an undivided one.
        if (program[i].verb == PipeVerb::kWeight && mutant.stages() * mutant.microbatches == 1)
          return 0;
        const std::string what = "dropping " + print(program[i]);
        program.erase(program.begin() + static_cast<std::ptrdiff_t>(i));
        expect_killed(mutant, what);
        return 1;
      }),
      1000);
}

TEST(PipeMutants, RepeatedActionsAreKilled) {
  EXPECT_GT(for_every_action([](const PipeSchedule& mutant, Program& program, std::size_t i) {
              const PipeAction action = program[i];
              program.insert(program.begin() + static_cast<std::ptrdiff_t>(i), action);
              expect_killed(mutant, "repeating " + print(action));
              return 1;
            }),
            1000);
}

TEST(PipeMutants, ActionsRedirectedToAnotherStageOrMicrobatchAreKilled) {
  EXPECT_GT(
      for_every_action([](const PipeSchedule& mutant, Program& program, std::size_t i) {
        const PipeAction action = program[i];
        int mutants = 0;
        for (int stage = 0; stage <= mutant.stages(); ++stage) {
          if (stage == action.stage) continue;
          program[i].stage = static_cast<std::uint16_t>(stage);
          expect_killed(mutant, print(action) + " redirected to stage " + std::to_string(stage));
          ++mutants;
        }
        program[i] = action;
        for (int microbatch = 0; microbatch <= mutant.microbatches; ++microbatch) {
          if (microbatch == static_cast<int>(action.microbatch)) continue;
          program[i].microbatch = static_cast<std::uint32_t>(microbatch);
          expect_killed(mutant,
                        print(action) + " redirected to microbatch " + std::to_string(microbatch));
          ++mutants;
        }
        return mutants;
      }),
      5000);
}

TEST(PipeMutants, RetypedActionsAreKilled) {
  EXPECT_GT(for_every_action([](const PipeSchedule& mutant, Program& program, std::size_t i) {
              const PipeAction action = program[i];
              int mutants = 0;
              for (int verb = 0; verb < 7; ++verb) {
                if (verb == static_cast<int>(action.verb)) continue;
                program[i].verb = static_cast<PipeVerb>(verb);
                expect_killed(mutant, print(action) + " retyped to " + print(program[i]));
                ++mutants;
              }
              return mutants;
            }),
            5000);
}

// Whether the order of two actions of one rank is forced by data, by their stream or by the order
// of gradient sums.
bool order_is_forced(const PipeSchedule& schedule, const PipeAction& a, const PipeAction& b) {
  const bool split = splits_backward(schedule);
  const PipeVerb last = split ? PipeVerb::kWeight : PipeVerb::kBackward;
  if (a.stage == b.stage && a.verb == last && b.verb == last) return true;
  if (a.stage == b.stage && a.verb == b.verb && (is_send(a.verb) || is_receive(a.verb)))
    return true;
  if (a.stage == b.stage && a.microbatch == b.microbatch) {
    // Only a receive of the gradient is free to come before the forward and what follows it.
    return a.verb != PipeVerb::kRecvBackward && b.verb != PipeVerb::kRecvBackward
               ? !(a.verb == PipeVerb::kSendForward || b.verb == PipeVerb::kSendForward ||
                   a.verb == PipeVerb::kSendBackward || b.verb == PipeVerb::kSendBackward) ||
                     a.verb == PipeVerb::kForward ||
                     (a.verb == PipeVerb::kBackward && b.verb != PipeVerb::kWeight)
               : b.verb == PipeVerb::kBackward;
  }
  return false;
}

TEST(PipeMutants, SwapsThatBreakAForcedOrderAreKilled) {
  EXPECT_GT(for_every_action([](const PipeSchedule& mutant, Program& program, std::size_t i) {
              int mutants = 0;
              for (std::size_t j = i + 1; j < program.size(); ++j) {
                if (!order_is_forced(mutant, program[i], program[j])) continue;
                std::swap(program[i], program[j]);
                expect_killed(mutant,
                              "swapping " + print(program[j]) + " and " + print(program[i]));
                std::swap(program[i], program[j]);
                ++mutants;
              }
              return mutants;
            }),
            1000);
}

TEST(PipeMutants, ExchangedStagesInThePlacementAreKilled) {
  for (const PipeSchedule& schedule : small_schedules()) {
    for (std::size_t a = 0; a < schedule.placement.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        if (schedule.placement[a] == schedule.placement[b]) continue;
        PipeSchedule mutant = schedule;
        std::swap(mutant.placement[a], mutant.placement[b]);
        expect_killed(mutant, "exchanging placements");
      }
    }
  }
}

// The failure names the actions, and the drawing points at them.
void expect_failure(const std::string& text, const std::string& part, const std::string& drawing) {
  const PipeVerdict verdict = verify(parse_pipe_schedule(text));
  EXPECT_NE(verdict.failure.find(part), std::string::npos) << verdict.failure;
  EXPECT_EQ(verdict.drawing, drawing);
}

constexpr const char* kHead = "pipeline test ranks 2 chunks 1 microbatches 1\n";

TEST(PipeVerify, DeadlockIsShownAsTheShortestCircle) {
  expect_failure(std::string(kHead) +
                     "rank 0: recvB0.0 F0.0 sendF0.0 B0.0\n"
                     "rank 1: recvF1.0 F1.0 B1.0 sendB1.0\n",
                 "deadlock with any number of buffered messages: rank 0 at recvB0.0 waits for rank "
                 "1 at recvF1.0 "
                 "waits for rank 0",
                 "rank 0: recvB0.0 F0.0 sendF0.0 B0.0\n"
                 "        ^^^^^^^^\n"
                 "rank 1: recvF1.0 F1.0 B1.0 sendB1.0\n"
                 "        ^^^^^^^^\n");
}

TEST(PipeVerify, MissingAndMisplacedActionsArePointedAt) {
  expect_failure(
      std::string(kHead) + "rank 0: F0.0 sendF0.0 B0.0\nrank 1: recvF1.0 F1.0 B1.0 sendB1.0\n",
      "recvB0.0 is missing on rank 0",
      "rank 0: F0.0 sendF0.0 B0.0 (end)\n                           ^^^^^\n");
  expect_failure(std::string(kHead) +
                     "rank 0: F0.0 sendF0.0 B0.0 recvB0.0\nrank 1: recvF1.0 F1.0 B1.0 sendB1.0\n",
                 "B0.0 on rank 0 comes before recvB0.0, which it needs",
                 "rank 0: F0.0 sendF0.0 B0.0 recvB0.0 (end)\n                      ^^^^\n");
  expect_failure(std::string(kHead) + "rank 0: F1.0 B1.0\nrank 1: F0.0 B0.0\n", "placed on 1",
                 "rank 0: F1.0 B1.0 (end)\n        ^^^^\n");
  expect_failure(std::string(kHead) + "rank 0:\n", "too few", "");
}

TEST(PipeVerify, StreamsThatCrossAreShownOnBothRanks) {
  expect_failure(
      "pipeline test ranks 2 chunks 1 microbatches 2\n"
      "rank 0: F0.0 sendF0.0 F0.1 sendF0.1 recvB0.0 B0.0 recvB0.1 B0.1\n"
      "rank 1: recvF1.1 recvF1.0 F1.0 B1.0 sendB1.0 F1.1 B1.1 sendB1.1\n",
      "message 0 from rank 0 to 1 is sendF0.0, but the receiver expects recvF1.1",
      "rank 0: F0.0 sendF0.0 F0.1 sendF0.1 recvB0.0 ...\n"
      "             ^^^^^^^^\n"
      "rank 1: recvF1.1 recvF1.0 F1.0 B1.0 ...\n"
      "        ^^^^^^^^\n");
}

TEST(PipeVerify, WeightGradientsOutOfOrderAreNamed) {
  expect_failure("pipeline test ranks 1 chunks 1 microbatches 2\nrank 0: F0.0 F0.1 B0.1 B0.0\n",
                 "B0.1 comes before B0.0",
                 "rank 0: F0.0 F0.1 B0.1 B0.0 (end)\n                  ^^^^\n");
}

// k forwards are sent before the first backward is received: a stream of k messages, unless the
// receiver takes them.
TEST(PipeVerify, CreditsAreTheLeastThatDoNotDeadlock) {
  const PipeSchedule lazy = parse_pipe_schedule(
      "pipeline lazy ranks 3 chunks 1 microbatches 2\n"
      "rank 0: F0.0 sendF0.0 F0.1 sendF0.1 recvB0.0 B0.0 recvB0.1 B0.1\n"
      "rank 1: recvF1.0 F1.0 sendF1.0 recvB1.0 B1.0 sendB1.0 recvF1.1 F1.1 sendF1.1 recvB1.1 B1.1 "
      "sendB1.1\n"
      "rank 2: recvF2.0 F2.0 B2.0 sendB2.0 recvF2.1 F2.1 B2.1 sendB2.1\n");
  // Rank 1 offers B0 while rank 0 still offers F1: without a buffer both wait.
  EXPECT_EQ(verify(lazy).facts.credits, 1) << verify(lazy).failure;
  for (const PipeSchedule& schedule : small_schedules()) {
    const int credits = verify(schedule).facts.credits;
    const std::vector<PipeStream> streams = streams_of(schedule);
    for (int c = 0; c <= credits + 1; ++c) {
      bool done = true;
      const auto stops = run_programs(schedule, streams, static_cast<std::size_t>(c));
      for (std::size_t rank = 0; rank < stops.size(); ++rank)
        done = done && stops[rank] == schedule.actions[rank].size();
      EXPECT_EQ(done, c >= credits) << print(schedule);
    }
  }
}

// Rank 0 sends all k microbatches before it turns to the loss of the first, on which rank 1 insists
// before it takes the second: k - 1 messages wait.
TEST(PipeVerify, CreditsGrowWithWhatAReaderLeavesWaiting) {
  for (int k = 1; k <= 6; ++k) {
    std::string first = "rank 0:";
    std::string turn;
    std::string second = "rank 1:";
    for (int i = 0; i < k; ++i) {
      const std::string n = "." + std::to_string(i) + " ";
      first += " F0" + n;
      turn += "F3" + n + "B3" + n + "B0" + n;
      second += " F1" + n + "F2" + n + "B2" + n + "B1" + n;
    }
    const PipeSchedule schedule =
        load_pipe_schedule("pipeline wait ranks 2 chunks 2 microbatches " + std::to_string(k) +
                           "\nplacement 0 1 1 0\n" + first + turn + "\n" + second + "\n");
    EXPECT_EQ(verify(schedule).facts.credits, k - 1) << print(schedule);
  }
}

TEST(PipePasses, MessagesAreDerivedFromComputationsAloneAndAgainTheSame) {
  for (const PipeSchedule& schedule : small_schedules()) {
    PipeSchedule bare = schedule;
    for (auto& program : bare.actions) {
      std::erase_if(program,
                    [](const PipeAction& a) { return is_send(a.verb) || is_receive(a.verb); });
    }
    EXPECT_EQ(insert_messages(bare), schedule);
    EXPECT_EQ(insert_messages(schedule), schedule);
  }
}

// A reader that takes microbatch 1 before 0, which its writer sends second: the receive of 0 moves
// ahead.
TEST(PipePasses, ReceivesFollowTheOrderOfSendsWhereComputationsDoNot) {
  const PipeSchedule schedule =
      insert_messages(parse_pipe_schedule("pipeline crossed ranks 2 chunks 1 microbatches 2\nrank "
                                          "0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.1 F1.0 B1.0 B1.1\n"));
  const PipeVerdict verdict = verify(schedule);
  EXPECT_TRUE(verdict.proved()) << verdict.failure << verdict.drawing;
  EXPECT_EQ(schedule.actions[1].front(), (PipeAction{PipeVerb::kRecvForward, 1, 0}));
}

TEST(PipePasses, OneRankAndNeighbouringStagesOnOneRankSendNothing) {
  for (const PipeAlgorithm& algorithm : pipe_algorithms()) {
    EXPECT_EQ(verify(generate(algorithm, {1, algorithm.default_chunks, 5})).facts.messages, 0);
  }
  const PipeSchedule v = generate(find_pipe_algorithm("zb-v"), {2, 2, 4});
  // Stages 0 1 | 2 3 are on ranks 0 1 1 0: only the boundaries 0-1 and 2-3 cross.
  EXPECT_EQ(verify(v).facts.messages, 2 * 2 * 4);
}

void expect_parse_error(const std::string& text, std::string_view part) {
  try {
    (void)parse_pipe_schedule(text);
    ADD_FAILURE() << "accepted: " << text;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(PipeText, BadTextIsOneLineWithTheLegalForm) {
  expect_parse_error("", "expected a line 'pipeline NAME");
  expect_parse_error("pipeline x ranks 2 chunks 1\n", "line 1: found 'pipeline'");
  expect_parse_error("pipeline x ranks 0 chunks 1 microbatches 1\n", "ranks from 1 to 65535");
  expect_parse_error("pipeline x ranks 9 chunks 60000 microbatches 1\n", "chunks from 1 to 7281");
  expect_parse_error("pipeline x ranks 2 chunks 1 microbatches -1\n", "microbatches from 1");
  const std::string head = kHead;
  expect_parse_error(head + "placement 0\n", "one for each of the 2 stages");
  expect_parse_error(head + "placement 0 0\n", "1 stages on every rank");
  expect_parse_error(head + "# ok\n\nrank 2: F0.0\n",
                     "line 4: found '2', expected a rank from 0 to 1");
  expect_parse_error(head + "rank 0 F0.0\n", "expected 'rank R: ACTIONS'");
  expect_parse_error(head + "rank 0: F0\n", "an action as F0.3");
  expect_parse_error(head + "rank 0: F0.1\n", "a microbatch from 0 to 0");
  expect_parse_error(head + "rank 0: F2.0\n", "a stage from 0 to 1");
  expect_parse_error(head + "rank 0: X0.0\n", "one of F, B, W");
  expect_parse_error(head + "rank 0: .0\n", "one of F, B, W");
  expect_parse_error(head + "stage 0: F0.0\n", "'placement' or 'rank'");
  expect_parse_error(head + "rank 0: \x01\x02" + std::string(100, 'z'), "found '??zzzz");
}

TEST(PipeText, CommentsBlankLinesAndSeveralLinesOfARankAreRead) {
  const PipeSchedule schedule = parse_pipe_schedule(
      "# by hand\n\npipeline mine ranks 1 chunks 1 microbatches 2  # two\nrank 0: F0.0 B0.0\nrank "
      "0: F0.1 B0.1\n");
  EXPECT_EQ(
      print(schedule),
      "pipeline mine ranks 1 chunks 1 microbatches 2\nplacement 0\nrank 0: F0.0 B0.0 F0.1 B0.1\n");
  EXPECT_TRUE(verify(schedule).proved());
}

TEST(PipeText, FilesAreCompletedAndProvedBeforeTheyRun) {
  const std::string bare =
      "pipeline mine ranks 2 chunks 1 microbatches 1\nrank 0: F0.0 B0.0\nrank 1: F1.0 B1.0\n";
  const PipeSchedule schedule = load_pipe_schedule(bare);
  EXPECT_EQ(verify(schedule).facts.messages, 2);
  EXPECT_EQ(load_pipe_schedule(print(schedule)), schedule);
  EXPECT_THROW(
      (void)load_pipe_schedule("pipeline mine ranks 2 chunks 1 microbatches 1\nrank 0: B0.0 F0.0\n"
                               "rank 1: F1.0 B1.0\n"),
      UsageError);
  // Computations on each other's rank have no messages to insert, and the proof says why.
  try {
    (void)load_pipe_schedule(
        "pipeline crossed ranks 2 chunks 1 microbatches 1\nrank 0: F1.0 B1.0\nrank 1: F0.0 B0.0\n");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("placed on 1"), std::string::npos) << error.what();
  }
  EXPECT_THROW((void)load_pipe_schedule("pipeline stray ranks 2 chunks 1 microbatches 1\n"
                                        "rank 0: F0.0 F1.0 B1.0 B0.0\nrank 1:\n"),
               UsageError);
  // Two ranks that wait for each other's stage: the order of computations itself is a circle.
  try {
    (void)load_pipe_schedule(
        "pipeline loop ranks 2 chunks 2 microbatches 1\n"
        "rank 0: F0.0 F2.0 B2.0 B0.0\nrank 1: F3.0 F1.0 B3.0 B1.0\n");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("deadlock"), std::string::npos) << error.what();
  }
}

TEST(PipeTable, RefusedParametersNameTheRule) {
  const auto expect_refusal = [](const char* name, PipeParams params, std::string_view part) {
    try {
      (void)generate(find_pipe_algorithm(name), params);
      ADD_FAILURE() << name << " accepted";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect_refusal("1f1b", {4, 2, 8}, "'1f1b' has 1 model chunk per rank, not 2");
  expect_refusal("interleaved", {4, 1, 8}, "at least 2 model chunks");
  expect_refusal("zb-v", {4, 3, 8}, "has 2 model chunks");
  expect_refusal("gpipe", {0, 1, 8}, "at least 1 rank");
  expect_refusal("gpipe", {4, 0, 8}, "at least 1 model chunk");
  expect_refusal("gpipe", {4, 1, 0}, "1 to 16777216 microbatches");
  expect_refusal("interleaved", {1000, 100, 8}, "at most 65535 stages");
  expect_refusal("nothing", {1, 1, 1},
                 "the schedules are gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v");
}

}  // namespace
}  // namespace sinew::sched
