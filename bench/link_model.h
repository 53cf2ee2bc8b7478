// LinkModel: the measured terms of the alpha-beta-gamma model between the ranks of a communicator.
//
// All ranks measure at once, each sending to its right neighbour while it receives from its left
// one: the load of a ring step, so the terms contain what ranks take from each other when they
// share cores and memory. alpha_s is the time of one such round of one element; beta_s_per_byte the
// slope between two large sizes; gamma_s_per_byte the time in which every rank reduces one byte
// into another.
//
// Never does: know algorithms. Threads: one communicator, one thread. Collective.
#pragma once

#include "comm/communicator.h"

namespace sinew::bench {

struct LinkModel {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  double gamma_s_per_byte = 0;
};

[[nodiscard]] LinkModel measure_links(comm::Communicator& communicator, DType dtype, ReduceOp op);

}  // namespace sinew::bench
