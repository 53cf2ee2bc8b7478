// LinkModel: what a message between the ranks of a communicator takes, measured, for predictions of
// collectives.
//
// Measured on ring all-gathers, P-1 rounds in which every rank sends to its right neighbour while
// it receives from its left one: the load of a collective's round on the path that collectives
// take, so the times contain what ranks take from each other when they share cores and memory.
// Between the measured sizes a message's time is interpolated; beyond the largest it grows with the
// last slope.
//
// Never does: know algorithms. Threads: one communicator, one thread.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "sched/collective/registry.h"

namespace sinew::bench {

struct LinkModel {
  struct Point {
    double bytes = 0;
    double seconds = 0;  // median
    double least_s = 0;  // of all repetitions
  };
  std::vector<Point> messages;  // by rising size; seconds never fall
  double gamma_s_per_byte = 0;  // all ranks reduce one byte into another at once

  // Terms of the alpha-beta model without sizes: one latency, one bandwidth.
  [[nodiscard]] static LinkModel uniform(double alpha_s, double beta_s_per_byte,
                                         double gamma_s_per_byte);

  // The best seen, over repetitions and sizes: what a lower bound may count with. Bandwidth is
  // bytes over the whole time of a message.
  [[nodiscard]] double least_alpha_s() const;
  [[nodiscard]] double least_beta_s_per_byte() const;
  [[nodiscard]] double alpha_s() const { return message_s(0); }
  [[nodiscard]] double message_s(double bytes) const;
};

// Collective. A world of one has links that cost nothing.
[[nodiscard]] LinkModel measure_links(comm::Communicator& communicator, DType dtype, ReduceOp op);

}  // namespace sinew::bench
