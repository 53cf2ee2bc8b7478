// Rendezvous: whether a schedule completes when no message is buffered, that is when each send is
// done only once its receive is, or when one message per lane is. Without buffers any send may let
// the receiver read the sender's buffer itself. Where it does not, a cycle exists, as in recursive
// doubling in place: both ranks send what their receive will overwrite, and somebody must copy.
//
// Threads: a pure function. Cost: steps of all ranks times rounds.
#pragma once

#include <vector>

#include "comm/fuse.h"
#include "sched/schedule.h"

namespace sinew::comm {

// The schedule must hold the programs of all ranks. chains: [world], the steps of each that happen
// as one (fuse.h).
enum class Buffers : bool { kNone, kOneEachLane };
[[nodiscard]] bool completes(const sched::Schedule& schedule, const std::vector<Chains>& chains,
                             Buffers buffers);

}  // namespace sinew::comm
