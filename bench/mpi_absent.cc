// The baseline in a build without MPI: there is none, and no operation has one.
#include "bench/mpi_baseline.h"
#include "sched/base/check.h"

namespace sinew::bench {

std::string why_mpi_lacks(const CollectiveShape& /*shape*/) { return "this build has no MPI"; }

std::string mpi_library() { return {}; }

MpiCollective::MpiCollective(const CollectiveShape& shape) : shape_(shape) {
  CHECK(why_mpi_lacks(shape).empty());
}

void MpiCollective::run(const void* input, void* output) const { run_parts(input, output); }

void MpiCollective::run_parts(const void* /*input*/, void* /*output*/) const {}

}  // namespace sinew::bench
