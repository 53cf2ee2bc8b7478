// A program of another project, with warnings and a language of its own.
#include <cstdio>

#include "comm/communicator.h"

int main() {
  const auto comm = sinew::comm::Communicator::from_mpi({});
  double value = 1 + comm->rank();
  comm->all_reduce(&value, &value, 1, sinew::DType::kF64, sinew::ReduceOp::kSum);
  if (comm->rank() == 0) std::printf("%d ranks: %g\n", comm->world(), value);
  int unused = 0;  // no warning of this project's is an error there
}
