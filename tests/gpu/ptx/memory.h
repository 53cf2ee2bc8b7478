// Memory: global memory as the threads of one launch see it.
//
// Strong: a store is visible at once. Weak: it waits in a buffer of its thread, becomes visible to
// others in an order that is drawn from a seed, and at the latest when its thread releases. Behind
// a barrier the block has one buffer: what a thread releases then holds what it learned there, as
// the PTX memory model has it (causality order through barriers). Stores to overlapping bytes keep
// their order. Loads are not reordered: an acquire that is missing is not seen by this.
//
// Threads: the fibers of one launch, which share an OS thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
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

// What a thread has to do with memory: its stores, and its block's.
struct View {
  Stores own;
  Stores* block = nullptr;
};

class Memory {
 public:
  Memory(bool weak, std::uint64_t seed) : weak_(weak) { random_.state = twin::mix_seed(seed, 1); }

  void store(View& view, char* place, const void* value, std::size_t size_bytes);
  void load(const View& view, const char* place, void* value, std::size_t size_bytes) const;
  // At a barrier of block or warp.
  void share(View& view);
  // Everything this thread and, before its latest barrier, its block stored becomes visible.
  void release(View& view);
  // Time passes: some stores become visible.
  void turn(View& view);

 private:
  void commit_one(Stores& stores, std::size_t index);
  void commit_overlapping(Stores& stores, const char* place, std::size_t size_bytes);
  void commit_all(Stores& stores);
  void commit_some(View& view);

  bool weak_;
  twin::Random random_;
};

}  // namespace sinew::ptx
