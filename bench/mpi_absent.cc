// The baseline in a build without MPI: there is none, and no operation has one.
#include "bench/mpi_baseline.h"
#include "sched/base/check.h"

namespace sinew::bench {

std::string why_mpi_lacks(const CollectiveShape& /*shape*/) { return "this build has no MPI"; }

std::string mpi_library() { return {}; }

void mpi_collective(const CollectiveShape& shape, const void* /*input*/, void* /*output*/) {
  CHECK(why_mpi_lacks(shape).empty());
}

}  // namespace sinew::bench
