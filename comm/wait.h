// Waiting: spin, then yield the core, then sleep, each stage as long as the machine makes it worth.
//
// With a core per rank the answer is usually one cache miss away: spin. With more ranks than cores
// the rank that must answer may be waiting for this very core: yield at once. A wait that lasts
// milliseconds is somebody's computation: sleep on the doorbell, so that the core is theirs.
//
// Never does: decide what is waited for, or throw.
// Threads: a Waiter belongs to one wait of one thread.
#pragma once

#include <immintrin.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace sinew::comm {

struct WaitPolicy {
  int spins = 0;              // polls with a pause before the first yield
  std::int64_t yield_ns = 0;  // how long to yield before the first sleep
  double timeout_s = 60;
};

[[nodiscard]] std::int64_t now_ns();  // monotonic

// One per rank, in memory that its peers map. A sleeper raises `sleeping` and waits for `rings` to
// change; a peer that has written something rings when it sees it raised. No fence orders the
// peer's write before its look, so a ring can be missed: each sleep is therefore short, and a
// missed ring costs at most one.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> rings;
  std::atomic<std::uint32_t> sleeping;

  void ring() {
    if (sleeping.load(std::memory_order_relaxed) != 0) wake();
  }
  void wake();
};

class Waiter {
 public:
  Waiter(const WaitPolicy& policy, Doorbell& doorbell) : policy_(policy), doorbell_(doorbell) {}
  ~Waiter() {
    if (start_ns_ != 0) doorbell_.sleeping.store(0, std::memory_order_relaxed);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Waits a little. True when this step left the spinning stage: time to look for failures and the
  // deadline.
  bool pause() {
    if (spun_ < policy_.spins) [[likely]] {
      ++spun_;
      _mm_pause();
      return false;
    }
    rest();
    return true;
  }
  // Something moved: spin again, and the deadline starts anew.
  void reset() {
    spun_ = 0;
    if (start_ns_ != 0) [[unlikely]] {
      start_ns_ = 0;
      doorbell_.sleeping.store(0, std::memory_order_relaxed);
    }
  }
  [[nodiscard]] std::int64_t waited_ns() const { return last_ns_ - start_ns_; }
  [[nodiscard]] bool expired() const {
    return static_cast<double>(waited_ns()) > policy_.timeout_s * 1e9;
  }

 private:
  void rest();

  const WaitPolicy& policy_;
  Doorbell& doorbell_;
  int spun_ = 0;
  std::uint32_t heard_ = 0;    // rings before the last look at what is waited for
  std::int64_t start_ns_ = 0;  // 0: still spinning
  std::int64_t last_ns_ = 0;
};

// What this process may use: its cores, and a cgroup quota in cores (0: none). Equal `machine`:
// one kernel hands out the cores, whatever hosts the processes call themselves.
inline constexpr int kMaxCores = 1024;
struct Cores {
  std::uint64_t machine = 0;
  std::uint64_t mask[kMaxCores / 64] = {};
  double quota = 0;
};
[[nodiscard]] Cores usable_cores();
// Those of `ranks` that are on the machine of rank `own`, and which of them that is.
struct Neighbours {
  std::vector<Cores> cores;
  std::size_t own = 0;
};
[[nodiscard]] Neighbours neighbours(std::span<const Cores> ranks, std::size_t own);
// Of several processes of one machine together.
[[nodiscard]] int count_cores(std::span<const Cores> ranks);
// What one of them should use: its cores, shared out between those that may use the same ones, as
// equally as they can be. At least one, perhaps shared; a quota lowers the number.
[[nodiscard]] std::vector<int> share_of_cores(const Neighbours& ranks);

// spin_us < 0: chosen from ranks and cores.
[[nodiscard]] WaitPolicy wait_policy(int ranks, int cores, int spin_us, double timeout_s);

}  // namespace sinew::comm
