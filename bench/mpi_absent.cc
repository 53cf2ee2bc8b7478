// The baseline in a build without MPI: there is none, and no operation has one.
#include "bench/mpi_baseline.h"
#include "sched/base/check.h"

namespace sinew::bench {

bool mpi_has(const CollectiveShape& /*shape*/) { return false; }

void mpi_collective(const CollectiveShape& shape, const void* /*input*/, void* /*output*/) {
  CHECK(mpi_has(shape));
}

}  // namespace sinew::bench
