// The blocking of a GEMM: which part of A and B lies in which cache while the inner kernels run.
// Plain C++; the instruction set enters only through GemmKernels.
#pragma once

#include <cstdint>

#include "kernels/cpu.h"
#include "kernels/gemm.h"
#include "kernels/gemm_tile.h"

namespace sinew::kernels {

// Extents of the blocks. Only depth enters the order of floating-point operations: it is a
// constant, so results do not depend on cache sizes, thread count or the position in the matrix.
struct GemmBlocking {
  std::int64_t depth = 0;    // of k, per pass over C
  std::int64_t rows = 0;     // of A, packed at a time
  std::int64_t columns = 0;  // of B, packed at a time
};

[[nodiscard]] GemmBlocking gemm_blocking(const GemmKernels& kernels, const Cpu& processor);

// As gemm in gemm.h, on the given kernels and the calling thread. Extra memory: at most
// blocking.rows x depth + depth x columns floats.
void gemm_blocked(const GemmKernels& kernels, const GemmShape& shape, float alpha, const float* a,
                  const float* b, float beta, float* c);

}  // namespace sinew::kernels
