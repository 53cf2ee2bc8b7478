// A run that is killed at any moment leaves a complete checkpoint to resume from.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "model/checkpoint.h"
#include "sched/base/philox.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using Clock = std::chrono::steady_clock;
using test::ScratchDirectory;

TrainOptions options_of(const ScratchDirectory& directory, bool async_save) {
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 2, .heads = 2, .channels = 16});
  options.data = test::write_text_data(directory);
  options.batch = 2;
  options.steps = 1'000'000;
  options.threads = 1;
  options.async_save = async_save;
  options.keep_last = 3;  // and older ones are being removed meanwhile
  return options;
}

// Resumes when it can, then steps and saves without end.
[[noreturn]] void train_for_ever(TrainOptions options, const std::string& run) {
  if (std::filesystem::exists(run + "/latest")) options.resume = run;
  test::run_ranks(2, [&](comm::Communicator& ranks) {
    const auto trainer = Trainer::create(make_plan(options, 2), ranks);
    for (;;) {
      static_cast<void>(trainer->step());
      trainer->save(run);
    }
  });
  ::_exit(1);
}

std::string latest(const std::string& run) { return test::read_file(run + "/latest"); }

// Lets the child save `saves` times, and a random part of the next, then kills it. False when it
// does not get that far.
bool run_and_kill(const TrainOptions& options, const std::string& run, int saves,
                  std::chrono::microseconds then) {
  const pid_t child = ::fork();
  if (child == 0) {
    // However this test ends, its child does too.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == 1) ::_exit(1);
    train_for_ever(options, run);
  }
  // Only a child that hangs comes to it; one that is merely slow, or stopped for a while, does not.
  const auto deadline = Clock::now() + std::chrono::minutes(5);
  std::string seen = latest(run);
  while (saves > 0 && Clock::now() < deadline) {
    const std::string now = latest(run);
    if (now != seen && !now.empty()) --saves;
    seen = now;
    ::sched_yield();
  }
  const auto end = Clock::now() + then;
  while (Clock::now() < end) ::sched_yield();
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return saves == 0 && WIFSIGNALED(status);
}

class Kill : public testing::TestWithParam<bool> {};

// A few kills in `make test`, hundreds in `make test-full`.
std::uint64_t rounds() { return std::getenv("SINEW_TEST_FULL") != nullptr ? 300 : 10; }

bool has_unfinished(const std::string& run) {
  const std::filesystem::directory_iterator entries(run);
  return std::any_of(begin(entries), end(entries),
                     [](const auto& entry) { return entry.path().string().ends_with(".partial"); });
}

using Fingerprints = std::map<std::string, std::uint64_t>;

// What a run that nobody kills has after each of these steps.
std::map<std::int64_t, Fingerprints> uninterrupted(TrainOptions options,
                                                   const std::set<std::int64_t>& steps,
                                                   const std::string& run) {
  std::map<std::int64_t, Fingerprints> found;
  options.async_save = false;
  options.keep_last = 1;
  test::run_ranks(2, [&](comm::Communicator& ranks) {
    const auto trainer = Trainer::create(make_plan(options, 2), ranks);
    while (trainer->steps_done() < *steps.rbegin()) {
      static_cast<void>(trainer->step());
      if (!steps.contains(trainer->steps_done())) continue;
      trainer->save(run);
      if (ranks.rank() == 0)
        found[trainer->steps_done()] = read_state(find_checkpoint(run)).fingerprints;
      ranks.barrier();
    }
  });
  return found;
}

// Whole: its tensors have their fingerprints, which loading looks at. Resumed to equal bits: every
// kill's checkpoint, which the runs before it led to, is that of a run without kills.
TEST_P(Kill, ARunKilledAtAnyMomentResumesFromACompleteCheckpoint) {
  const ScratchDirectory directory;
  const TrainOptions options = options_of(directory, GetParam());
  const std::string run = directory.path("run");
  const Philox random(17, 1);
  std::map<std::int64_t, Fingerprints> left;  // by step
  int unfinished = 0;
  for (std::uint64_t round = 0; round < rounds(); ++round) {
    // A step and its save take a few milliseconds.
    const std::chrono::microseconds then(random.words(round)[0] % 6000);
    ASSERT_TRUE(run_and_kill(options, run, 1, then)) << "round " << round;
    unfinished += has_unfinished(run) ? 1 : 0;
    TrainOptions resumed = options;
    resumed.resume = run;
    test::run_ranks(1, [&](comm::Communicator& ranks) {
      const auto trainer = Trainer::create(make_plan(resumed, 1), ranks);
      const std::int64_t step = trainer->steps_done();
      if (!left.empty()) {
        EXPECT_GT(step, left.rbegin()->first);
      }
      left[step] = read_state(find_checkpoint(run)).fingerprints;
    });
  }
  std::set<std::int64_t> steps;
  for (const auto& [step, fingerprints] : left) steps.insert(step);
  EXPECT_TRUE(uninterrupted(options, steps, directory.path("whole")) == left);
  std::printf("%zu kills up to step %lld, %d of them while a checkpoint was being written\n",
              left.size(), static_cast<long long>(*steps.rbegin()), unfinished);
}

// However many kills left a checkpoint unfinished, the next run that writes there removes it.
TEST_P(Kill, WhatKilledRunsLeftUnfinishedIsGoneAfterTheNext) {
  const ScratchDirectory directory;
  TrainOptions options = options_of(directory, GetParam());
  const std::string run = directory.path("run");
  const Philox random(18, 1);
  for (std::uint64_t round = 0; round < 4; ++round)
    ASSERT_TRUE(
        run_and_kill(options, run, 1, std::chrono::microseconds(random.words(round)[0] % 3000)));
  options.resume = options.out = run;
  test::run_ranks(1, [&](comm::Communicator& ranks) {
    TrainOptions one_more = options;
    one_more.steps = read_state(find_checkpoint(run)).step + 1;
    const TrainPlan plan = make_plan(one_more, 1);
    const auto trainer = Trainer::create(plan, ranks);
    static_cast<void>(
        run_training(*trainer, plan, ranks, [](const StepMetrics&, std::optional<double>) {}));
  });
  for (const auto& entry : std::filesystem::directory_iterator(run))
    EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Kill, testing::Bool(), [](const auto& async_save) {
  return async_save.param ? "WrittenBesideTheTraining" : "WrittenBetweenSteps";
});

}  // namespace
}  // namespace sinew::model
