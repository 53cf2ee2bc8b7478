// Thread: what an instruction sees and changes: its thread's slots and memory. One object per
// thread of a running block, used again by threads that start later.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tests/gpu/ptx/function.h"
#include "tests/gpu/ptx/memory.h"

namespace sinew::ptx {

struct Thread {
  std::vector<std::uint64_t> slots;
  std::vector<std::uint64_t> local;
  const Function* function = nullptr;
  const Instruction* next = nullptr;  // null once the thread has returned
  Memory* memory = nullptr;
  View view;
  char* arena = nullptr;  // of the block's shared memory
  bool looked = false;    // at a word that others write, since the last turn of a loop
  // Products of a warp group under way: their sums, and the slots that get them.
  std::vector<float> sums;
  std::vector<int> sum_slots;
};

// The value of type T in a slot.
template <typename T>
T in(const Thread& thread, int slot) {
  const std::uint64_t bits = thread.slots[static_cast<std::size_t>(slot)];
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(bits);
  } else if constexpr (std::is_same_v<T, bool>) {
    return (bits & 1U) != 0;
  } else {
    return static_cast<T>(bits);
  }
}

template <typename T>
void out(Thread& thread, int slot, T value) {
  std::uint64_t& bits = thread.slots[static_cast<std::size_t>(slot)];
  if constexpr (std::is_same_v<T, float>) {
    bits = std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    bits = std::bit_cast<std::uint64_t>(value);
  } else if constexpr (std::is_signed_v<T>) {
    bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  } else {
    bits = static_cast<std::uint64_t>(value);
  }
}

}  // namespace sinew::ptx
