// Memory in kernels: 16-byte accesses, asynchronous copies into shared memory, and the flags,
// credits and words by which blocks and ranks hand buffers over. Memory that a peer can touch is
// accessed only by what names its ordering here.
//
// A release makes everything this thread did before, and what it learned at barriers, visible to
// who acquires the value. sys means all devices and hosts that map the word.
#pragma once

#include <cstdint>

#include "kernels/device/gpu/thread.h"

namespace sinew::gpu {

// Sixteen bytes of anything, moved by one access; the address is a multiple of 16.
struct [[gnu::may_alias]] alignas(16) Bytes16 {
  std::uint32_t word[4];
};
static_assert(sizeof(Bytes16) == 16);

#ifdef __CUDACC__

// Data that this kernel reads once: not kept in L1.
GPU_FUNCTION Bytes16 load16_once(const void* p) {
  Bytes16 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(p)
               : "memory");
  return v;
}
GPU_FUNCTION void store16(void* p, const Bytes16& v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.word[0]), "r"(v.word[1]),
               "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}

// Copies source_bytes (0 to 16) and zeroes the rest of the 16; both addresses are multiples of 16.
GPU_FUNCTION void async_copy16(void* shared, const void* global, int source_bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_u32(shared)),
               "l"(global), "r"(source_bytes)
               : "memory");
}
GPU_FUNCTION void async_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most GROUPS of this thread's newest groups are pending.
template <int GROUPS>
GPU_FUNCTION void async_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

GPU_FUNCTION void store_release_sys(std::uint64_t* p, std::uint64_t v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
// The name is that by which a test of the twin makes the load a relaxed one, and must notice.
GPU_FUNCTION std::uint64_t load_acquire_sys(const std::uint64_t* p, const char* /*name*/ = "") {
  std::uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
GPU_FUNCTION void store_relaxed_sys(std::uint64_t* p, std::uint64_t v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
GPU_FUNCTION std::uint64_t load_relaxed_sys(const std::uint64_t* p) {
  std::uint64_t v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
GPU_FUNCTION void atomic_add(float* p, float v) { atomicAdd(p, v); }
GPU_FUNCTION std::uint32_t atomic_add_acq_rel(std::uint32_t* p, std::uint32_t v) {
  std::uint32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(p), "r"(v)
               : "memory");
  return old;
}

#else

// Explicit moves: the race detector does not report races of a library copy.
GPU_FUNCTION Bytes16 load16_once(const void* p) {
  if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0)
    twin::fail("load of 16 bytes from misaligned %p", p);
  return *static_cast<const Bytes16*>(p);
}
GPU_FUNCTION void store16(void* p, const Bytes16& v) {
  if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0)
    twin::fail("store of 16 bytes to misaligned %p", p);
  *static_cast<Bytes16*>(p) = v;
}

GPU_FUNCTION void perform(const twin::AsyncCopy& copy) {
  auto* target = static_cast<unsigned char*>(copy.target);
  const auto* source = static_cast<const unsigned char*>(copy.source);
  for (int i = 0; i < copy.size_bytes; ++i) {
    target[i] = i < copy.source_bytes ? source[i] : static_cast<unsigned char>(0);
  }
}
GPU_FUNCTION void async_copy16(void* shared, const void* global, int source_bytes = 16,
                               const Site& site = Site::current()) {
  const twin::AsyncCopy copy = {shared, global, 16, source_bytes};
  if (twin::async_copy_issue(copy, site)) perform(copy);
}
GPU_FUNCTION void async_copy_commit() { twin::async_copy_commit(); }
template <int GROUPS>
GPU_FUNCTION void async_copy_wait() {
  while (const twin::AsyncCopy* copy = twin::async_copy_next(GROUPS)) perform(*copy);
}

GPU_FUNCTION void store_release_sys(std::uint64_t* p, std::uint64_t v,
                                    const Site& site = Site::current()) {
  twin::preemption_point(site);
  __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
GPU_FUNCTION std::uint64_t load_acquire_sys(const std::uint64_t* p, const char* name = "",
                                            const Site& site = Site::current()) {
  twin::preemption_point(site);
  if (twin::is_removed(name)) return __atomic_load_n(p, __ATOMIC_RELAXED);
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
GPU_FUNCTION void store_relaxed_sys(std::uint64_t* p, std::uint64_t v,
                                    const Site& site = Site::current()) {
  twin::preemption_point(site);
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
GPU_FUNCTION std::uint64_t load_relaxed_sys(const std::uint64_t* p,
                                            const Site& site = Site::current()) {
  twin::preemption_point(site);
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}
GPU_FUNCTION void atomic_add(float* p, float v, const Site& site = Site::current()) {
  twin::preemption_point(site);
  float old = 0;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  float sum = old + v;
  while (!__atomic_compare_exchange(p, &old, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    sum = old + v;
}
GPU_FUNCTION std::uint32_t atomic_add_acq_rel(std::uint32_t* p, std::uint32_t v,
                                              const Site& site = Site::current()) {
  twin::preemption_point(site);
  return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
}

#endif

}  // namespace sinew::gpu
