// Addresses of the state spaces as host pointers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/twin/state.h"
#include "tests/gpu/ptx/thread.h"

namespace sinew::ptx {

// Of size_bytes at that offset in the block's shared memory; fails where nothing was declared or
// the offset is not a multiple of the size.
inline char* shared_place(const Thread& thread, std::uint32_t offset, std::size_t size_bytes) {
  const twin::Block& block = *twin::self().block;
  const bool in_static = offset + size_bytes <= block.static_top;
  const bool in_dynamic = offset >= twin::kDynamicOffset &&
                          offset + size_bytes <= twin::kDynamicOffset + block.dynamic_bytes;
  if (!in_static && !in_dynamic)
    twin::fail("%zu bytes at %u are not in shared memory", size_bytes, offset);
  if (offset % size_bytes != 0)
    twin::fail("%zu bytes of shared memory at misaligned %u", size_bytes, offset);
  return thread.arena + offset;
}

// The instruction's address in shared memory.
inline char* shared_operand(const Thread& thread, const Instruction& i, int slot,
                            std::size_t size_bytes) {
  const auto base = in<std::uint32_t>(thread, slot);
  return shared_place(thread, base + static_cast<std::uint32_t>(i.offset), size_bytes);
}

inline char* pointer_operand(const Thread& thread, const Instruction& i, int slot,
                             std::size_t size_bytes) {
  const std::uint64_t address =
      in<std::uint64_t>(thread, slot) + static_cast<std::uint64_t>(i.offset);
  if (address % size_bytes != 0)
    twin::fail("%zu bytes at misaligned %p", size_bytes, reinterpret_cast<void*>(address));
  return reinterpret_cast<char*>(address);
}

}  // namespace sinew::ptx
