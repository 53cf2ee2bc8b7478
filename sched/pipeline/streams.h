// Streams: the messages of a pipeline schedule as the FIFO streams they travel in, and a run of all
// programs that knows nothing but who waits for whom. The part of the proof that is about two ranks
// at once.
//
// Never does: check what one rank's program says by itself (verify.cc does, before).
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sched/pipeline/schedule.h"

namespace sinew::sched {

// An action's place: rank and index in its program.
struct PipePlace {
  int rank = 0;
  std::size_t index = 0;
};

// All messages of one direction from one rank to another: the i-th send meets the i-th receive.
struct PipeStream {
  int source = 0;
  int target = 0;
  bool forward = true;
  std::vector<PipePlace> sends;
  std::vector<PipePlace> receives;
};

[[nodiscard]] bool is_send(PipeVerb verb);
[[nodiscard]] bool is_receive(PipeVerb verb);

// By increasing source, target, backward before forward. The stage of every action must have the
// neighbour that its verb speaks of.
[[nodiscard]] std::vector<PipeStream> streams_of(const PipeSchedule& schedule);

// Runs all programs as far as they go when a stream holds at most `credits` messages between send
// and receive; with 0 a send ends once its receiver has arrived at the receive. Returns where each
// rank stops: the size of its program when it finishes. More credits never stop a rank earlier.
// Both ends of every stream must have the same count.
[[nodiscard]] std::vector<std::size_t> run_programs(const PipeSchedule& schedule,
                                                    const std::vector<PipeStream>& streams,
                                                    std::size_t credits);

}  // namespace sinew::sched
