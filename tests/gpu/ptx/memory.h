// Memory: global memory as the threads of one launch see it.
//
// Strong: a store is visible at once. Weak: it waits in a buffer of its thread, becomes visible to
// others in an order that is drawn from a seed, and at the latest when its thread releases. Behind
// a barrier the block has one buffer: what a thread releases then holds what it learned there, as
// the PTX memory model has it (causality order through barriers). Stores to overlapping bytes keep
// their order. A plain load may give what lay there at any moment since its thread last learned
// something: at the kernel's beginning, by an acquire, or at a barrier from a thread of its block
// that had. So a load behind a flag that was read without acquire may be older than the flag. And a
// store behind such a flag may overtake the flag's load, and so the loads of the block that gave
// it: a store to what another block has loaded since its thread last learned something is counted.
//
// Threads: a Memory: the fibers of one launch, which share an OS thread. A History: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "kernels/device/twin/state.h"

namespace sinew::ptx {

// A store that others do not see yet; at most a line of 128 bytes, which becomes visible whole.
struct Store {
  char* place = nullptr;
  std::size_t size_bytes = 0;
  std::array<std::byte, 128> bytes;
};

using Stores = std::vector<Store>;

// Stores that have become visible to all, the latest of them with what they replaced, over all
// launches of the program: kernels of several ranks share memory.
class History {
 public:
  // Moments are numbers of stores.
  [[nodiscard]] std::uint64_t now() const;
  void write(char* place, const void* value, std::size_t size_bytes, const void* writer);
  // As it was at a moment not before `since`, drawn anew each time; never older than what `reader`
  // itself wrote.
  void read(const char* place, void* value, std::size_t size_bytes, std::uint64_t since,
            const void* reader, twin::Random& random) const;
  // A plain load happens now.
  void note_load(const char* place, std::size_t size_bytes, const void* reader);
  // A thread that last learned something at `since` stores now.
  void note_store(const char* place, std::size_t size_bytes, std::uint64_t since,
                  const void* writer);
  // Stores to what another block had loaded since then: they may overtake that load.
  [[nodiscard]] std::uint64_t overtaking() const;

 private:
  static constexpr std::size_t kKept = 512;
  struct Replaced {
    Store old;
    const void* writer = nullptr;
  };
  // The latest load that touched one of the words of 8 bytes with this index.
  struct Loaded {
    const char* place = nullptr;
    std::size_t size_bytes = 0;
    const void* reader = nullptr;
    std::uint64_t moment = 0;
  };
  static constexpr std::size_t kPlaces = std::size_t{1} << 14;
  mutable std::mutex mutex_;
  std::vector<Loaded> loaded_ = std::vector<Loaded>(kPlaces);
  std::deque<Replaced> latest_;
  std::uint64_t count_ = 0;
  std::uint64_t overtaking_ = 0;
};

// What the threads of a block have in common.
struct BlockView {
  Stores stores;
  std::uint64_t learned = 0;  // a moment, as View's
};

// What a thread has to do with memory: its stores, its block, and the moment before which it knows
// all of memory.
struct View {
  Stores own;
  BlockView* block = nullptr;
  std::uint64_t learned = 0;
};

class Memory {
 public:
  // history: null, or what makes memory weak; it must outlive this.
  Memory(History* history, std::uint64_t seed) : history_(history) {
    random_.state = twin::mix_seed(seed, 1);
  }

  // A thread begins.
  [[nodiscard]] View view_of(BlockView& block) const;

  void store(View& view, char* place, const void* value, std::size_t size_bytes);
  // Of words by which threads speak: the newest value.
  void load(const View& view, const char* place, void* value, std::size_t size_bytes) const;
  // Of data.
  void load_plain(const View& view, const char* place, void* value, std::size_t size_bytes);
  // Behind a load: what its value says is known.
  void acquire(View& view) const;
  // At a barrier of block or warp: before and behind the wait.
  void share(View& view);
  void learn(View& view) const;
  // Everything this thread and, before its latest barrier, its block stored becomes visible.
  void release(View& view);
  // Time passes: some stores become visible.
  void turn(View& view);

 private:
  void commit(const View& view, const Store& store);
  void commit_one(const View& view, Stores& stores, std::size_t index);
  void commit_overlapping(const View& view, const char* place, std::size_t size_bytes);
  void commit_all(const View& view, Stores& stores);
  void commit_some(View& view);

  History* history_;
  twin::Random random_;
};

}  // namespace sinew::ptx
