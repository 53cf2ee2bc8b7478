// Lines of 128 bytes that arrive whole: eight neighbouring lanes store 16 bytes each, and who sees
// the flag in the last 8 bytes sees the other 120. And the clock by which busy waits end.
//
// Assumption, not a promise of the PTX manual: a warp's aligned 128-byte store reaches a peer's
// memory as one transaction, and a warp's aligned 128-byte load reads it as one. It holds on NVLink
// and within one device as far as is published; over PCIe it must not be relied on. The twin
// executes both as one operation of the warp.
#pragma once

#include <cstdint>

#include "kernels/device/gpu/memory.h"
#include "kernels/device/gpu/thread.h"

#ifndef __CUDACC__
#include "kernels/device/twin/line.h"
#endif

namespace sinew::gpu {

constexpr int kLineBytes = 128;
constexpr int kLineLanes = 8;

// All 32 lanes call; lanes 8g to 8g + 7 bring the eight parts of one line, or all null.
#ifdef __CUDACC__

GPU_FUNCTION void store_lines(void* part, const Bytes16& v) {
  if (part == nullptr) return;
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(part), "r"(v.word[0]),
               "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}
GPU_FUNCTION Bytes16 load_lines(const void* part) {
  Bytes16 v{};
  if (part == nullptr) return v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(part)
               : "memory");
  return v;
}
GPU_FUNCTION std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

#else

GPU_FUNCTION void store_lines(void* part, const Bytes16& v, const Site& site = Site::current()) {
  twin::LineArgument argument{static_cast<std::uint64_t*>(part), {0, 0}};
  for (int i = 0; i < 4; ++i)
    argument.value[i / 2] |= static_cast<std::uint64_t>(v.word[i]) << (32 * (i % 2));
  twin::warp_rendezvous(kFullMask, twin::kStoreLines, &argument, site);
}
GPU_FUNCTION Bytes16 load_lines(const void* part, const Site& site = Site::current()) {
  // Only read from.
  twin::LineArgument argument{const_cast<std::uint64_t*>(static_cast<const std::uint64_t*>(part)),
                              {0, 0}};
  twin::warp_rendezvous(kFullMask, twin::kLoadLines, &argument, site);
  Bytes16 v;
  for (int i = 0; i < 4; ++i)
    v.word[i] = static_cast<std::uint32_t>(argument.value[i / 2] >> (32 * (i % 2)));
  return v;
}
GPU_FUNCTION std::uint64_t nanoseconds() { return twin::nanoseconds(); }

#endif

}  // namespace sinew::gpu
