// The twin's own data: fibers, blocks and the queue of runnable fibers of one launch. Internal to
// twin/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/device/twin/box_map.h"
#include "kernels/device/twin/config.h"
#include "kernels/device/twin/core.h"
#include "kernels/device/twin/fiber.h"
#include "kernels/device/twin/hopper.h"

namespace sinew::twin {

constexpr int kWarpLanes = 32;
constexpr int kThreadsBlockMax = 1024;
constexpr int kBarriers = 16;
// The twin's layout of a block's shared memory: static objects, each followed by a red zone, then
// the dynamic part. wgmma descriptors hold 18 bits of address, so that all of it must lie below 256
// KiB.
constexpr std::size_t kArenaBytes = 256 * 1024;
constexpr std::size_t kDynamicOffset = 24 * 1024;
constexpr std::size_t kRedZoneBytes = 32;
constexpr std::size_t kDynamicBytesMax = 227 * 1024;
static_assert(kDynamicOffset + kDynamicBytesMax <= kArenaBytes);

struct Random {
  std::uint64_t state = 1;
  // xorshift64 (Marsaglia, 2003); the low bits are the weak ones.
  std::uint32_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<std::uint32_t>(state >> 16);
  }
  std::uint32_t below(std::size_t bound) { return static_cast<std::uint32_t>(next() % bound); }
  bool coin() { return (next() & 1U) != 0; }
};
// A well-mixed, nonzero starting state for (seed, stream).
[[nodiscard]] std::uint64_t mix_seed(std::uint64_t seed, std::uint64_t stream);

// Pending asynchronous work of one thread, in groups: a ring of items and the end of each committed
// group.
template <typename Item, int kItems, int kGroups>
struct GroupQueue {
  std::array<Item, kItems> items;
  std::array<std::uint32_t, kGroups> group_end;
  std::uint32_t first = 0;  // counted over the thread's life, like `last` and group_end
  std::uint32_t last = 0;
  int groups = 0;

  void clear() { first = last = 0, groups = 0; }
  [[nodiscard]] bool full() const { return last - first == kItems; }
  [[nodiscard]] bool empty() const { return last == first; }
  void push(const Item& item) { items[last++ % kItems] = item; }
  // False when there are too many groups.
  [[nodiscard]] bool commit() {
    if (groups == kGroups) return false;
    group_end[static_cast<std::size_t>(groups++)] = last;
    return true;
  }
  // The oldest item that belongs to a group older than the newest `keep` ones; null when there is
  // none.
  [[nodiscard]] Item* next(int keep) {
    while (groups > keep) {
      if (first != group_end[0]) return &items[first++ % kItems];
      for (int i = 1; i < groups; ++i)
        group_end[static_cast<std::size_t>(i - 1)] = group_end[static_cast<std::size_t>(i)];
      --groups;
    }
    return nullptr;
  }
};

enum class FiberState : std::uint8_t { kReady, kAtWarp, kAtBarrier, kDone };

struct Block;
struct Launch;

struct Fiber : Thread {
  Context context;
  Block* block = nullptr;
  unsigned index = 0;  // in the block
  FiberState state = FiberState::kDone;
  std::uint32_t priority = 0;
  Site site;
  // while at a warp operation
  std::uint32_t mask = 0;
  const WarpOp* op = nullptr;
  void* argument = nullptr;
  // while at a barrier
  Fiber* next_waiting = nullptr;
  int barrier_result = 0;
  GroupQueue<AsyncCopy, 256, 32> copies;
  GroupQueue<Product, 64, 16> products;
  bool products_fenced = false;
  bool watched = true;    // by the race detector
  char arrive_token = 0;  // addresses that stand for happens-before edges
  char resume_token = 0;
};

struct WarpGroup {
  std::uint32_t mask = 0;
  std::uint32_t arrived = 0;
  const WarpOp* op = nullptr;
};

// Lanes of one warp may wait in several operations at once: one group per (mask, operation).
struct Warp {
  std::array<WarpGroup, kWarpLanes> group;
  int groups = 0;
  std::uint32_t exited = 0;
};

struct Barrier {
  int arrived = 0;
  int expected = 0;  // 0: all threads that have not exited
  int votes = 0;
  int waiting = 0;
  Fiber* head = nullptr;
  Fiber* tail = nullptr;
  unsigned phase = 0;            // of two
  std::array<char, 2> tokens{};  // one for each, addresses that stand for happens-before edges
};

struct SharedObject {
  const void* key;
  std::size_t offset;
};

struct Block {
  Launch* launch = nullptr;
  Block* next_idle = nullptr;  // while no engine uses it
  Fiber* fibers = nullptr;
  char* stacks = nullptr;
  int capacity = 0;  // fibers there are
  int threads = 0;   // fibers of this launch
  int alive = 0;
  bool active = false;
  std::array<Warp, kThreadsBlockMax / kWarpLanes> warps;
  std::array<Barrier, kBarriers> barriers;
  std::array<BoxLoad, 64> loads;  // box copies under way
  int load_count = 0;
  bool barriers_fenced = false;
  char* arena = nullptr;
  std::size_t dynamic_bytes = 0;
  std::array<SharedObject, 64> objects;
  int object_count = 0;
  std::size_t static_top = 0;
};

// Runnable fibers in arrival order: a ring whose capacity is a power of two above the number of
// fibers.
struct RunQueue {
  Fiber** ring = nullptr;
  std::size_t mask = 0;
  std::size_t head = std::size_t{1} << 40;  // both ends move, head also down
  std::size_t tail = std::size_t{1} << 40;

  [[nodiscard]] std::size_t count() const { return tail - head; }
  [[nodiscard]] Fiber*& at(std::size_t position) const { return ring[position & mask]; }
};

struct Launch {
  Config config;
  Random random;
  RunQueue queue;
  Context main;  // the OS thread's own stack
  void (*body)(const void* argument) = nullptr;
  const void* argument = nullptr;
  Block** blocks = nullptr;
  int block_count = 0;
  bool failed = false;
  bool illegal_access = false;  // failed inside the signal handler
  std::array<char, 4096> error{};
  std::uint64_t idle_turns = 0;  // turns of busy waits since any thread last got on
  double idle_since_s = 0;
  std::uint32_t lowest_priority = 1U << 30;  // below every drawn one
  char start_token = 0;
  char end_token = 0;
};

[[nodiscard]] inline Fiber& self() { return *static_cast<Fiber*>(current); }
[[nodiscard]] inline Launch& launch_of(const Fiber& fiber) { return *fiber.block->launch; }

// scheduler.cc
void make_ready(Fiber& fiber);
void make_ready_last(Fiber& fiber);         // a thread that only waited must not starve the others
[[nodiscard]] Fiber* pick(Launch& launch);  // null when no fiber can run
void block_self();                          // runs others until self is ready and picked again
void progress(Launch& launch);  // something happened that a busy wait may be waiting for
void fiber_entry();
void record_failure(Launch& launch, const char* text);

// barrier.cc
void barrier_thread_exits(Block& block);
// warp.cc
void warp_thread_exits(Fiber& fiber);
// illegal_access.cc
void watch_for_illegal_accesses();

}  // namespace sinew::twin
