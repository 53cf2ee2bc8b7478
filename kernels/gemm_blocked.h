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
  std::int64_t depth = 0;    // words of k, per pass over C
  std::int64_t rows = 0;     // of A, packed at a time
  std::int64_t columns = 0;  // of B, packed at a time
  std::int64_t chunk = 0;    // columns of C whose sums are kept apart when C cannot hold them
};

// words: of k, in all.
[[nodiscard]] GemmBlocking gemm_blocking(std::int64_t tile_columns, std::int64_t words,
                                         const Cpu& processor);

// One product on the given kernels and the calling thread. In and Out: float, bf16 with themselves,
// bf16 with float. Extra memory: at most blocking.rows x depth + depth x columns words, and for a
// bf16 C and k > depth rows x chunk floats.
template <typename In, typename Out>
void gemm_blocked(const GemmKernels<In>& kernels, const GemmCall<In, Out>& call,
                  const PackedColumns& packed);

}  // namespace sinew::kernels
