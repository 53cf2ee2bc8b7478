// insert_messages: from a pipeline schedule of computations to one that also sends and receives.
//
// Never does: reorder computations, or prove (pipeline/verify.h runs after it).
// Threads: pure.
#pragma once

#include "sched/pipeline/schedule.h"

namespace sinew::sched {

// Adds to each rank's F, B, W actions the messages they imply; messages already there are dropped
// first.
//   - A send follows the computation that made its value at once, so that nothing is held back.
//   - Streams are (source, target, direction). The receives of a stream stand in the order of its
//     sends, each just before the first computation that needs it or a later message of the stream.
//   - Neighbouring stages on one rank get no message; so p = 1 gets none at all.
// With that the program can block only where the computations alone would: a receive waits for a
// send that stands right behind a computation its reader depends on, or behind an earlier one of
// the same rank. Sends are buffered. The schedule's computations must lie on the ranks of its
// placement. O(actions).
[[nodiscard]] PipeSchedule insert_messages(const PipeSchedule& schedule);

}  // namespace sinew::sched
