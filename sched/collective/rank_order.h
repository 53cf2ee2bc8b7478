// Sums in the order of ranks, ((x0 + x1) + x2) + ..., on every rank that sums, whatever the order
// of arrival.
#pragma once

#include <vector>

#include "sched/builder.h"

namespace sinew::sched {

using Messages = std::vector<Builder::Message>;

// `to` combines the posted messages, sorted by sender, and its own value; those of ranks before it
// are summed aside (builder.h).
void sum_in_rank_order(Builder& b, int to, int chunk, int chunks, const Messages& messages);

}  // namespace sinew::sched
