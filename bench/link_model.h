// LinkModel: what a message between the ranks of a communicator takes, measured, for predictions of
// collectives.
//
// Measured on ring all-gathers, P-1 rounds in which every rank sends to its right neighbour while
// it receives from its left one: the load of a collective's round on the path that collectives
// take, so the times contain what ranks take from each other when they share cores and memory.
// Between the measured sizes a message's time is interpolated; beyond the largest it grows with the
// last slope. For bounds also the fastest ways are timed: calls within one cache line, reads out of
// memory that ranks share, reductions of all ranks' sources in one pass.
//
// Never does: know algorithms. Threads: one communicator, one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "sched/collective/registry.h"

namespace sinew::bench {

struct LinkModel {
  struct Point {
    double bytes = 0;
    double seconds = 0;  // median
  };
  // What a lower bound may count with: the best seen of anything that was tried, so that no way of
  // moving bytes is faster.
  struct Least {
    double alpha_s = 0;
    double beta_s_per_byte = 0;
    double gamma_s_per_byte = 0;
    // One message at a time; false where ranks read the memory of all others, at one latency for
    // all.
    bool one_port = true;
  };
  std::vector<Point> messages;  // by rising size; seconds never fall
  double gamma_s_per_byte = 0;  // all ranks reduce one byte into another at once
  Least least = {};

  // Terms of the alpha-beta model without sizes: one latency, one bandwidth.
  [[nodiscard]] static LinkModel uniform(double alpha_s, double beta_s_per_byte,
                                         double gamma_s_per_byte);

  [[nodiscard]] double alpha_s() const { return message_s(0); }
  [[nodiscard]] double message_s(double bytes) const;
};

// The sizes of messages that are timed between so many ranks, rising: fewer of many ranks, whose
// all-gathers of large ones would take minutes and more memory than there is.
[[nodiscard]] std::span<const std::int64_t> message_sizes(int world);

// Collective. A world of one has links that cost nothing.
[[nodiscard]] LinkModel measure_links(comm::Communicator& communicator, DType dtype, ReduceOp op);

}  // namespace sinew::bench
