// The roster's promise to a rank that fails: when it returns to its caller, no peer reads its
// memory.
#include "comm/roster.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace sinew::comm::testing {
namespace {

constexpr double kDeadline_s = 30;

// A roster's memory and one view of it per rank, as threads of one process have them.
class Rosters {
 public:
  explicit Rosters(int world) : size_(Roster::size_bytes(world)) {
    memory_ = static_cast<std::byte*>(::operator new(size_, std::align_val_t(64)));
    std::fill_n(memory_, size_, std::byte{0});
    for (int rank = 0; rank < world; ++rank)
      views_.push_back(std::make_unique<Roster>(memory_, rank, world, nullptr));
  }
  ~Rosters() { ::operator delete(memory_, std::align_val_t(64)); }
  Rosters(const Rosters&) = delete;
  Rosters& operator=(const Rosters&) = delete;
  Roster& operator[](int rank) { return *views_[static_cast<std::size_t>(rank)]; }

 private:
  std::size_t size_;
  std::byte* memory_;
  std::vector<std::unique_ptr<Roster>> views_;
};

TEST(Roster, AFailingRankReturnsOnlyAfterTheLastReader) {
  for (int round = 0; round < 50; ++round) {
    Rosters rosters(3);
    ASSERT_TRUE(rosters[1].enter_memory());
    ASSERT_TRUE(rosters[2].enter_memory());
    std::atomic<bool> returned{false};
    std::thread failing([&] {
      rosters[0].poison(Cause::kMismatch, 1, "a fault");
      rosters[0].await_readers(kDeadline_s);
      returned = true;
    });
    while (!rosters[1].poisoned()) sched_yield();
    for (const int reader : {1, 2}) {
      for (int look = 0; look < 20; ++look) {
        sched_yield();
        EXPECT_FALSE(returned);
      }
      rosters[reader].leave_memory();
    }
    failing.join();
    EXPECT_TRUE(returned);
  }
}

TEST(Roster, NobodyReadsAfterAFailure) {
  Rosters rosters(2);
  rosters[0].poison(Cause::kTimeout, 1, "a fault");
  EXPECT_FALSE(rosters[1].enter_memory());
  // The refused reader does not count as one.
  rosters[0].await_readers(kDeadline_s);
}

// One rank's communicators may be used by different threads.
TEST(Roster, OneOfTwoReadersOfARankIsStillWaitedFor) {
  Rosters rosters(2);
  Roster& half = rosters[1];
  ASSERT_TRUE(half.enter_memory());
  ASSERT_TRUE(half.enter_memory());
  half.leave_memory();
  std::atomic<bool> returned{false};
  std::thread failing([&] {
    rosters[0].poison(Cause::kTimeout, 1, "a fault");
    rosters[0].await_readers(kDeadline_s);
    returned = true;
  });
  while (!half.poisoned()) sched_yield();
  for (int look = 0; look < 20; ++look) {
    sched_yield();
    EXPECT_FALSE(returned);
  }
  half.leave_memory();
  failing.join();
}

}  // namespace
}  // namespace sinew::comm::testing
