// simulate: how long a Schedule takes on a Topology, and when each of its messages travels.
//
// Never does: prove. A schedule that verify refuses is timed to no purpose, or refused by Error
// when it stops half way. Threads: pure. Deterministic: the same arguments give the same times.
//
// Model, per segment of a step (every chunk is cut in k segments, segment j moves part j of each)
//
//   transfer  a send that waits for nothing more holds the sender's sending port, the receiver's
//             receiving port and the shared links between them for latency + bytes * cost. The
//             messages of a lane travel one after the other.
//   order     kReady: a free port takes the earliest segment that is ready, then the earliest step
//             in the program, and waits for the receiving port and links of that one; these go to
//             the port that has been free longest. kProgram: both ports and the compute lane of a
//             rank serve strictly in the order of its program, as in the rounds of a synchronous
//             algorithm; an order that cannot be kept is an Error. For one segment and finitely
//             many ports.
//   joined    the parts of a joined message are one transfer and one receive.
//   work      where the topology has work for a pair: before a send holds its port the sender's
//             processor is busy for it, and after the message the receiver's, before the receive.
//   cores     work, reductions and copies of a rank follow each other; ranks that share processors
//             (`cores`) wait for one, whoever has waited longest first. Where the topology says
//             nothing of either, nothing changes: each rank reduces and copies on its own.
//   receive   done when the message is there and its dependences are; a reduction then takes bytes
//             * reduce on the rank's one compute lane, where local copies and reductions run as
//             well; after a message whose work says so, more.
//   credits   a send waits until fewer than that many messages of its lane are sent but not
//   received
//             (in segments); with 0 until its receive waits for nothing but the message.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/cost.h"
#include "sched/schedule.h"
#include "sched/timeline.h"
#include "sched/topology.h"

namespace sinew::sched {

enum class PortOrder : std::uint8_t { kReady, kProgram };

struct SimulateOptions {
  std::int64_t bytes = 0;  // m: the full vector of the operation
  int segments = 0;        // 0: the schedule's own, at least 1
  int credits = -1;        // negative: no limit
  PortOrder order = PortOrder::kReady;
  bool timeline = true;  // fill Simulation::timeline and transfers
};

// A message: the first of its steps in the sender's program, and when it held the ports.
struct Transfer {
  int from = 0;
  int to = 0;
  std::uint32_t step = 0;
  int segment = 0;
  double begin_s = 0;
  double end_s = 0;
};

struct Simulation {
  double seconds = 0;  // until the last rank is done
  // Whether something waited for a port, a link or a processor that something else held. If not, no
  // other order of serving is faster.
  bool contended = false;
  std::vector<double> rank_seconds;  // [world]
  std::vector<Transfer> transfers;   // in order of begin_s
  Timeline timeline;                 // a row per rank, its lanes send, recv, reduce
};

// Requires the form, matched messages and the world of the topology (UsageError); throws Error when
// the schedule deadlocks. O(segments * steps * log) for one port.
[[nodiscard]] Simulation simulate(const Schedule& schedule, const Topology& topology,
                                  const SimulateOptions& options);

// The shortest of the ways in which a machine may serve: options as they are; holding messages back
// until they are awaited (no credits); and ports in program order. In the first one early messages
// may get in the way of late ones.
[[nodiscard]] Simulation simulate_fastest(const Schedule& schedule, const Topology& topology,
                                          const SimulateOptions& options);

// The three coefficients of a schedule, with chunks of equal size: the simulated time with latency
// 1 and all else free, with a cost of 1 per vector, and with a reduction cost of 1 per vector. In
// the port order that gives the smaller sum.
[[nodiscard]] Cost count_cost(const Schedule& schedule);

}  // namespace sinew::sched
