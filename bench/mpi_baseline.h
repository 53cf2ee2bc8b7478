// MPI's own collectives, as the baseline that benchmarks put beside ours in the same run. The only
// place where payload moves through MPI.
//
// Threads: the thread that initialised MPI.
#pragma once

#include <cstdint>

#include "bench/collective_case.h"

namespace sinew::bench {

// Whether MPI has this operation on this type; it lacks 16-bit floats.
[[nodiscard]] bool mpi_has(const CollectiveShape& shape);

// Calls MPI's collective on MPI_COMM_WORLD with the shape's count, in place where the shape says
// so. An average is summed only: MPI has no average, and the missing division favours it.
void mpi_collective(const CollectiveShape& shape, const void* input, void* output);

}  // namespace sinew::bench
