// Order: which step of which rank waits for which other one, as one graph over all ranks, and what
// buffering an executor needs so that nothing waits for itself.
//
// Why a graph is enough: a step never chooses. It happens once, when all it waits for has happened,
// and happening only ever lets others go on. Whatever fair order an executor takes, the same steps
// complete; all of them do exactly when the graph has no cycle. Each credit and each step of window
// only removes edges, so what completes with few completes with more.
//
// Edges
//
//   dependence  a step waits for those of its own program
//   message     a receive waits for its send
//   stream      a message waits for the one before it in its lane, at both ends
//   credit      with c credits a send waits until the receive c messages before its own is done;
//               with none it also waits for all that its own receive waits for (rendezvous)
//   window      with window w a step waits for the step w places before it in its program and for
//               all before that; 1 is an executor that blocks in each step
//
// Cutting messages into segments adds no cycle as long as a lane can hold c whole messages: every
// edge between segments projects on an edge above, or stays within one message and points forward.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/matching.h"
#include "sched/schedule.h"

namespace sinew::sched {

inline constexpr int kUnlimited = 1 << 30;

struct Buffering {
  int credits = kUnlimited;  // messages a lane holds that are sent and not received
  int window = kUnlimited;   // steps of a program in flight
};

struct OrderResult {
  // All steps, numbered through (first_numbers), each after all it waits for. Shorter than the
  // number of steps when some never happen.
  std::vector<std::uint32_t> order;
  // Steps that wait for each other in a ring: each waits for the next, the last one for the first.
  std::vector<std::uint32_t> cycle;
  [[nodiscard]] bool completes() const { return cycle.empty(); }
};

// The streams' ends must have equal lengths. O(steps + dependences).
[[nodiscard]] OrderResult order_steps(const Schedule& schedule, const Matching& matching,
                                      const Buffering& buffering);

// The least credits with which all steps happen in this window. Requires that they do with
// unlimited ones, else returns kUnlimited.
[[nodiscard]] int least_credits(const Schedule& schedule, const Matching& matching, int window);
// The least window with which all steps happen without any credit; kUnlimited when there is none.
[[nodiscard]] int least_window(const Schedule& schedule, const Matching& matching);

}  // namespace sinew::sched
