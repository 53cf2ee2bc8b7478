// Tensor cores of sm_80 and later: 16x8x16 products of bf16 with f32 accumulation, and the loads
// that bring tiles from shared memory into their registers.
//
// Which lane holds what: PTX manual, "Matrix fragments for mma.m16n8k16" and "ldmatrix". All 32
// lanes of the warp call together.
#pragma once

#include <cstdint>

#include "kernels/device/gpu/memory.h"
#include "kernels/device/gpu/thread.h"

#ifndef __CUDACC__
#include "kernels/device/twin/tensor_core.h"
#endif

namespace sinew::gpu {

// Registers of one lane: a 16x16 tile of A, a 16x8 tile of B, a 16x8 tile of the result.
struct FragmentA {
  std::uint32_t r[4];
};
struct FragmentB {
  std::uint32_t r[2];
};
struct FragmentC {
  float v[4];
};

#ifdef __CUDACC__

// c += a b.
GPU_FUNCTION void multiply_add(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
}

// Four 8x8 matrices of 16-bit elements: lane l names row l % 8 of matrix l / 8, a multiple of 16
// bytes. Register i belongs to matrix i.
GPU_FUNCTION FragmentA load_matrices(const void* row) {
  FragmentA f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(shared_u32(row))
               : "memory");
  return f;
}
// The same, each matrix transposed.
GPU_FUNCTION FragmentA load_matrices_transposed(const void* row) {
  FragmentA f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(shared_u32(row))
               : "memory");
  return f;
}

#else

GPU_FUNCTION void multiply_add(FragmentC& c, const FragmentA& a, const FragmentB& b,
                               const Site& site = Site::current()) {
  twin::MmaArgument argument;
  for (int i = 0; i < 4; ++i) argument.a[i] = a.r[i], argument.d[i] = c.v[i];
  for (int i = 0; i < 2; ++i) argument.b[i] = b.r[i];
  twin::warp_rendezvous(kFullMask, twin::kMmaBf16, &argument, site);
  for (int i = 0; i < 4; ++i) c.v[i] = argument.d[i];
}

GPU_FUNCTION FragmentA load_by(const twin::WarpOp& op, const void* row, const Site& site) {
  if (twin::shared_address(row) % 16 != 0) twin::fail("ldmatrix: misaligned row");
  twin::LoadMatrixArgument argument;
  const Bytes16 bytes = *static_cast<const Bytes16*>(row);
  for (int i = 0; i < 4; ++i) argument.row[i] = bytes.word[i];
  twin::warp_rendezvous(kFullMask, op, &argument, site);
  FragmentA f;
  for (int i = 0; i < 4; ++i) f.r[i] = argument.result[i];
  return f;
}
GPU_FUNCTION FragmentA load_matrices(const void* row, const Site& site = Site::current()) {
  return load_by(twin::kLoadMatrix, row, site);
}
GPU_FUNCTION FragmentA load_matrices_transposed(const void* row,
                                                const Site& site = Site::current()) {
  return load_by(twin::kLoadMatrixTransposed, row, site);
}

#endif

// Two tiles of B come with one load: columns 0 to 7 and 8 to 15.
GPU_FUNCTION FragmentB half(const FragmentA& loaded, int index) {
  return {{loaded.r[2 * index], loaded.r[2 * index + 1]}};
}

}  // namespace sinew::gpu
