// Rendezvous: whether a schedule completes when no message is buffered, that is when each send is
// done only once its receive is. Then any send may let the receiver read the sender's buffer
// itself. Otherwise a cycle exists, as in recursive doubling in place: both ranks send what their
// receive will overwrite, and somebody must copy.
//
// Threads: a pure function. Cost: steps of all ranks times rounds.
#pragma once

#include <vector>

#include "comm/fuse.h"
#include "sched/schedule.h"

namespace sinew::comm {

// The schedule must hold the programs of all ranks. chains: [world], the steps of each that happen
// as one (fuse.h).
[[nodiscard]] bool completes_unbuffered(const sched::Schedule& schedule,
                                        const std::vector<Chains>& chains);

}  // namespace sinew::comm
