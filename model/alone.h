// What a group's communication takes by itself: the prediction that time inside calls is held
// against.
//
// Threads: one rank, one thread.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "sched/plan/volume.h"

namespace sinew::model {

// Collective over the group: seconds of one call of this pattern on an array of `payload_bytes`
// (a message: to the next rank, while one comes from the rank before), the shortest of a few,
// while no rank of the group does anything else.
[[nodiscard]] double time_alone(comm::Communicator& group, sched::Pattern pattern,
                                std::int64_t payload_bytes);

}  // namespace sinew::model
