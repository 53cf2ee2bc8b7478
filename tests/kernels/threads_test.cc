// Laws of the thread pool and of the cut of work into parts.
#include "kernels/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "sched/base/check.h"

namespace sinew::kernels {
namespace {

TEST(ThreadPool, RunsEveryPartOnceForAnyNumberOfPartsAndThreads) {
  for (int count : {1, 2, 3, 5}) {
    ThreadPool pool(count);
    for (int parts : {0, 1, 2, 7, 100}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(parts));
      pool.run(
          parts,
          [](void* context, int part) {
            (*static_cast<std::vector<std::atomic<int>>*>(
                context))[static_cast<std::size_t>(part)]++;
          },
          &runs);
      for (const auto& run : runs) EXPECT_EQ(run.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortRunsNeverMixTheirTasks) {
  ThreadPool pool(3);
  for (int round = 0; round < 5000; ++round) {
    std::vector<int> written(4, -1);
    parallel_for({3, &pool}, 4, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) written[static_cast<std::size_t>(i)] = round;
    });
    ASSERT_EQ(written, std::vector<int>(4, round));
  }
}

TEST(ThreadPool, NestedAndConcurrentCallsDoTheirOwnParts) {
  ThreadPool pool(2);
  std::atomic<int> sum{0};
  const auto outer = [&] {
    parallel_for({2, &pool}, 8, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        parallel_for({2, &pool}, 4, 1,
                     [&](std::int64_t b, std::int64_t e) { sum += static_cast<int>(e - b); });
      }
    });
  };
  std::thread other(outer);
  outer();
  other.join();
  EXPECT_EQ(sum.load(), 2 * 8 * 4);
}

// The cores that this thread may use.
std::vector<int> usable_cores() {
  cpu_set_t set;
  CHECK_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  return cores;
}

TEST(ThreadPool, HelpersStayOnTheirCoresAndLeaveTheCallerItsOwn) {
  std::vector<int> cores = usable_cores();
  if (cores.size() < 2) GTEST_SKIP() << "needs two usable cores";
  cores.resize(2);
  ThreadPool pool(2, cores);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  for (const int place : {cores[0], cores[1], cores[0]}) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(static_cast<std::size_t>(place), &own);
    ASSERT_EQ(sched_setaffinity(0, sizeof(own), &own), 0);
    // Each part waits until both have begun, so that each thread runs one.
    struct Seen {
      std::atomic<int> begun{0};
      std::atomic<int> cores[2];
    } seen;
    pool.run(
        2,
        [](void* context, int part) {
          auto& s = *static_cast<Seen*>(context);
          ++s.begun;
          while (s.begun < 2) std::this_thread::yield();
          s.cores[part] = sched_getcpu();
        },
        &seen);
    EXPECT_NE(seen.cores[0], seen.cores[1]);
    EXPECT_TRUE(seen.cores[0] == place || seen.cores[1] == place);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(ParallelFor, CoversTheRangeWithPartsOfAtLeastTheGrain) {
  ThreadPool pool(4);
  for (const Threads threads : {Threads{1, nullptr}, Threads{3, nullptr}, Threads{4, &pool}}) {
    for (std::int64_t count : {0, 1, 9, 10, 19, 20, 35, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      std::atomic<int> calls{0};
      parallel_for(threads, count, 10, [&](std::int64_t begin, std::int64_t end) {
        ++calls;
        EXPECT_GE(end - begin, count < 10 ? count : 10);
        for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)]++;
      });
      EXPECT_LE(calls.load(), threads.count);
      for (const auto& visits : seen) EXPECT_EQ(visits.load(), 1);
    }
  }
}

}  // namespace
}  // namespace sinew::kernels
