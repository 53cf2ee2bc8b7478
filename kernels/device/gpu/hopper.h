// The asynchronous units of sm_90: barriers in shared memory that count arrivals and bytes, box
// copies by tensor maps, and products of a warp group (four warps) straight from shared memory.
//
// PTX manual: mbarrier, cp.async.bulk.tensor, wgmma.mma_async. Descriptors and layouts are where a
// misreading would hide: each stands in one function here, and none has been seen on hardware.
// Products exist on sm_90a alone; a kernel that calls them compiles for every architecture and must
// be launched on that one only.
#pragma once

#include <cstdint>

#include "kernels/device/gpu/thread.h"
#include "kernels/device/tensor_map.h"

#ifndef __CUDACC__
#include "kernels/device/twin/hopper.h"
#endif

namespace sinew::gpu {

// Of 64 x N products one thread has N / 2 values: rows 16 w + l / 4 and 8 below for warp w of the
// group and lane l, columns 8 j + l % 4 * 2 and the next: values 4 j to 4 j + 3.
constexpr int kProductRows = 64;
constexpr int kProductDepth = 16;

// How an operand lies in shared memory: rows of 128 bytes along the summed dimension, or along the
// other one.
enum class Major : std::uint8_t { kDepth = 0, kOuter = 1 };

#ifdef __CUDACC__

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SINEW_SM90(...) __VA_ARGS__
#else
#define SINEW_SM90(...) __trap()
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SINEW_SM90A(...) __VA_ARGS__
#else
#define SINEW_SM90A(...) __trap()
#endif

GPU_FUNCTION void mbarrier_init(std::uint64_t* barrier, unsigned arrivals) {
  SINEW_SM90(asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_u32(barrier)),
                          "r"(arrivals)
                          : "memory"));
}
// Makes initialised barriers known to the copy unit; a barrier of the block follows.
GPU_FUNCTION void mbarrier_fence_init() {
  SINEW_SM90(
      asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::
                       : "memory"));
}
GPU_FUNCTION void mbarrier_arrive(std::uint64_t* barrier) {
  SINEW_SM90(asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_u32(barrier))
                          : "memory"));
}
// Arrives, and lets the phase wait for so many bytes more.
GPU_FUNCTION void mbarrier_arrive_expect(std::uint64_t* barrier, unsigned bytes) {
  SINEW_SM90(asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_u32(barrier)),
      "r"(bytes)
      : "memory"));
}
// Whether the phase of that parity has ended.
GPU_FUNCTION bool mbarrier_try(std::uint64_t* barrier, unsigned parity) {
  std::uint32_t ended = 0;
  SINEW_SM90(
      asm volatile("{\n\t.reg .pred p;\n\t"
                   "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                   "selp.u32 %0, 1, 0, p;\n\t}"
                   : "=r"(ended)
                   : "r"(shared_u32(barrier)), "r"(parity)
                   : "memory"));
  return ended != 0;
}
// The box at (column, row) into shared memory, a multiple of 1024 bytes; its bytes are reported to
// the barrier. One thread calls.
GPU_FUNCTION void load_box(void* shared, const device::TensorMap& map, int column, int row,
                           std::uint64_t* barrier) {
  SINEW_SM90(
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                   "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_u32(shared)),
                   "l"(&map), "r"(column), "r"(row), "r"(shared_u32(barrier))
                   : "memory"));
}
GPU_FUNCTION void wgmma_fence() {
  SINEW_SM90A(asm volatile("wgmma.fence.sync.aligned;" ::: "memory"));
}
GPU_FUNCTION void wgmma_commit() {
  SINEW_SM90A(asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"));
}
// Waits until at most GROUPS of the newest groups are under way.
template <int GROUPS>
GPU_FUNCTION void wgmma_wait() {
  SINEW_SM90A(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory"));
}
// d = a b or d += a b, with 16 summands. All 128 threads of the warp group call. d belongs to the
// product until it is waited for.
#define SINEW_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SINEW_D16(i) SINEW_D4(i), SINEW_D4(i + 4), SINEW_D4(i + 8), SINEW_D4(i + 12)
#define SINEW_D32(i) SINEW_D16(i), SINEW_D16(i + 16)
template <Major a_major, Major b_major>
GPU_FUNCTION void wgmma_multiply(float (&d)[64], std::uint64_t a, std::uint64_t b,
                                 bool accumulate) {
  SINEW_SM90A(asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, %67, %68;\n\t}"
      : SINEW_D32(0), SINEW_D32(32)
      : "l"(a), "l"(b), "r"(accumulate ? 1 : 0), "n"(static_cast<int>(a_major)),
        "n"(static_cast<int>(b_major))));
}
template <Major a_major, Major b_major>
GPU_FUNCTION void wgmma_multiply(float (&d)[128], std::uint64_t a, std::uint64_t b,
                                 bool accumulate) {
  SINEW_SM90A(asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %130, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127"
      "}, %128, %129, p, 1, 1, %131, %132;\n\t}"
      : SINEW_D32(0), SINEW_D32(32), SINEW_D32(64), SINEW_D32(96)
      : "l"(a), "l"(b), "r"(accumulate ? 1 : 0), "n"(static_cast<int>(a_major)),
        "n"(static_cast<int>(b_major))));
}
#undef SINEW_D32
#undef SINEW_D16
#undef SINEW_D4
// Behind the last wait: the compiler, which knows nothing of products under way, must not read the
// sums before.
template <int VALUES>
GPU_FUNCTION void wgmma_results(float (&d)[VALUES]) {
  UNROLL for (int i = 0; i < VALUES; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#undef SINEW_SM90
#undef SINEW_SM90A

#else

GPU_FUNCTION void mbarrier_init(std::uint64_t* barrier, unsigned arrivals) {
  twin::mbarrier_init(barrier, arrivals);
}
GPU_FUNCTION void mbarrier_fence_init() { twin::mbarrier_fence_init(); }
GPU_FUNCTION void mbarrier_arrive(std::uint64_t* barrier, const Site& site = Site::current()) {
  twin::mbarrier_arrive(barrier, 0, site);
}
GPU_FUNCTION void mbarrier_arrive_expect(std::uint64_t* barrier, unsigned bytes,
                                         const Site& site = Site::current()) {
  twin::mbarrier_arrive(barrier, bytes, site);
}
GPU_FUNCTION bool mbarrier_try(std::uint64_t* barrier, unsigned parity,
                               const Site& site = Site::current()) {
  return twin::mbarrier_try(barrier, parity, site);
}
GPU_FUNCTION void load_box(void* shared, const device::TensorMap& map, int column, int row,
                           std::uint64_t* barrier, const Site& site = Site::current()) {
  twin::box_load(shared, &map, column, row, barrier, site);
}
GPU_FUNCTION void wgmma_fence() { twin::product_fence(); }
GPU_FUNCTION void wgmma_commit() { twin::product_commit(); }
template <int GROUPS>
GPU_FUNCTION void wgmma_wait() {
  twin::product_wait(GROUPS);
}
template <Major a_major, Major b_major, int VALUES>
GPU_FUNCTION void wgmma_multiply(float (&d)[VALUES], std::uint64_t a, std::uint64_t b,
                                 bool accumulate, const Site& site = Site::current()) {
  twin::product_issue({.d = d,
                       .a = {a, a_major == Major::kOuter},
                       .b = {b, b_major == Major::kOuter},
                       .accumulate = accumulate,
                       .columns = 2 * VALUES},
                      site);
}
template <int VALUES>
GPU_FUNCTION void wgmma_results(float (&)[VALUES]) {}

#endif

GPU_FUNCTION void mbarrier_wait(std::uint64_t* barrier, unsigned parity) {
  while (!mbarrier_try(barrier, parity)) spin_turn();
}

// Names an operand tile to wgmma_multiply, as load_box leaves it at a multiple of 1024 bytes.
// kDepth: rows of 64 summands, `first` in its first row at a multiple of 32 bytes. kOuter: panels
// of 64 rows or columns of the product, one line of 128 bytes for each summand, panel_bytes apart;
// `first` begins a line whose number is a multiple of 8.
template <Major major>
GPU_FUNCTION std::uint64_t tile_descriptor(const void* first, std::uint32_t panel_bytes) {
  constexpr std::uint64_t kEightLines = 1024 >> 4;
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  // The manual's "leading dimension byte offset": without meaning, by custom 1, for kDepth.
  const std::uint64_t leading = major == Major::kOuter ? panel_bytes >> 4 : 1;
  return static_cast<std::uint64_t>((shared_u32(first) & 0x3ffffU) >> 4) | leading << 16 |
         kEightLines << 32 | kSwizzle128;
}

}  // namespace sinew::gpu
