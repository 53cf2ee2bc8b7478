// A kernel's threads: who they are, how they meet, what they share. Under nvcc these are CUDA's own
// names; on the host the same names lead to the twin.
//
// Rules for kernels: shared memory only by SHARED and SHARED_DYNAMIC; full explicit masks; no
// return before a collective operation of the block or warp; every statement that orders threads
// stands in REQUIRED, so that the tests can leave it out and see it missed.
#pragma once

#include <cstdint>

#include "kernels/device/launch.h"

#ifdef __CUDACC__

#define GPU_FUNCTION __device__ __forceinline__
// T name[count] for each block, aligned for 16-byte accesses.
#define SHARED(T, name, count) __shared__ __align__(16) T name[count]
// The launch's dynamic shared memory, aligned for swizzled tiles.
#define SHARED_DYNAMIC(T, name)                                           \
  extern __shared__ __align__(1024) unsigned char sinew_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(sinew_dynamic_shared)
#define UNROLL _Pragma("unroll")

#ifdef SINEW_MUTANT
#define REQUIRED(name, ...)                                   \
  do {                                                        \
    if constexpr (!::sinew::gpu::same(#name, SINEW_MUTANT)) { \
      __VA_ARGS__;                                            \
    }                                                         \
  } while (false)
#else
#define REQUIRED(name, ...) \
  do {                      \
    __VA_ARGS__;            \
  } while (false)
#endif

namespace sinew::gpu {

constexpr bool same(const char* left, const char* right) {
  while (*left != '\0' && *left == *right) ++left, ++right;
  return *left == *right;
}

GPU_FUNCTION std::uint32_t shared_u32(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
// Barrier ID (1 to 15) among `threads` threads, a multiple of 32; arrive does not wait.
template <int ID>
GPU_FUNCTION void named_barrier_sync(int threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(ID), "r"(threads) : "memory");
}
template <int ID>
GPU_FUNCTION void named_barrier_arrive(int threads) {
  asm volatile("bar.arrive %0, %1;" ::"n"(ID), "r"(threads) : "memory");
}
// A turn of a busy wait. The hardware lets the other warps run by itself.
GPU_FUNCTION void spin_turn() {}
// Position of the lowest set bit; bits is not 0.
GPU_FUNCTION int lowest_bit(std::uint32_t bits) { return __ffs(static_cast<int>(bits)) - 1; }

}  // namespace sinew::gpu

#else

#include <cstddef>

#include "kernels/device/twin/core.h"
#include "kernels/device/twin/warp_functions.h"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static_assert(false, "shared memory is declared by SHARED or SHARED_DYNAMIC")

#define threadIdx (::sinew::twin::current->thread_index)
#define blockIdx (::sinew::twin::current->block_index)
#define blockDim (::sinew::twin::current->block_extent)
#define gridDim (::sinew::twin::current->grid_extent)

#define GPU_FUNCTION inline
#define SHARED(T, name, count)                                         \
  static const char sinew_key_##name = 0;                              \
  auto& name = *static_cast<T(*)[count]>(::sinew::twin::shared_object( \
      &sinew_key_##name, sizeof(T) * (count), alignof(T) > 16 ? alignof(T) : 16))
#define SHARED_DYNAMIC(T, name) T* const name = static_cast<T*>(::sinew::twin::shared_dynamic())
#define UNROLL
#define REQUIRED(name, ...)                  \
  do {                                       \
    if (!::sinew::twin::is_removed(#name)) { \
      __VA_ARGS__;                           \
    }                                        \
  } while (false)

inline void __syncthreads(const sinew::twin::Site& site = sinew::twin::Site::current()) {
  sinew::twin::block_barrier(0, 0, false, site);
}
inline int __syncthreads_count(int predicate,
                               const sinew::twin::Site& site = sinew::twin::Site::current()) {
  return sinew::twin::block_barrier(0, 0, predicate != 0, site);
}

namespace sinew::gpu {

using twin::Site;

GPU_FUNCTION std::uint32_t shared_u32(const void* pointer) { return twin::shared_address(pointer); }
template <int ID>
GPU_FUNCTION void named_barrier_sync(int threads, const Site& site = Site::current()) {
  twin::block_barrier(ID, threads, false, site);
}
template <int ID>
GPU_FUNCTION void named_barrier_arrive(int threads, const Site& site = Site::current()) {
  twin::block_arrive(ID, threads, site);
}
GPU_FUNCTION void spin_turn(const Site& site = Site::current()) { twin::spin_turn(site); }
GPU_FUNCTION int lowest_bit(std::uint32_t bits) { return __builtin_ctz(bits); }

}  // namespace sinew::gpu

#endif

namespace sinew::gpu {

constexpr int kWarp = 32;
constexpr std::uint32_t kFullMask = 0xffffffffU;

GPU_FUNCTION int lane() { return static_cast<int>(threadIdx.x % kWarp); }
GPU_FUNCTION int warp() { return static_cast<int>(threadIdx.x / kWarp); }

// Thread number over the grid's x dimension and their count, 64 bits: the grid-stride loop.
GPU_FUNCTION std::int64_t grid_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
GPU_FUNCTION std::int64_t grid_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace sinew::gpu
