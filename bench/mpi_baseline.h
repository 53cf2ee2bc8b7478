// MPI's own collectives, as the baseline that benchmarks put beside ours in the same run. The only
// place where payload moves through MPI.
//
// Threads: the thread that initialised MPI.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/collective_case.h"

namespace sinew::bench {

// Why MPI does not have this operation on this type and size, in one clause; empty when it has. It
// lacks floats of 16 and 8 bits, and counts beyond an int.
[[nodiscard]] std::string why_mpi_lacks(const CollectiveShape& shape);

// Which library is measured, in its own words without what follows the version: "Open MPI v4.1.4",
// "MPICH Version: 4.0.2". Empty in a build without MPI.
[[nodiscard]] std::string mpi_library();

// MPI's collective on MPI_COMM_WORLD with the shape's count or parts, in place where the shape says
// so. An average is summed only: MPI has no average, and the missing division favours it; so
// does a missing factor.
class MpiCollective {
 public:
  explicit MpiCollective(const CollectiveShape& shape);
  void run(const void* input, void* output) const;

 private:
  void run_parts(const void* input, void* output) const;

  CollectiveShape shape_;
  // [world] each, of the v-forms: the parts, where they begin, and of an all-to-all what each rank
  // sends here.
  std::vector<int> parts_;
  std::vector<int> begins_;
  std::vector<int> own_parts_;
  std::vector<int> own_begins_;
};

}  // namespace sinew::bench
