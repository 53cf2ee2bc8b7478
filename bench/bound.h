// Bounds: what no algorithm can beat in the one-port alpha-beta-gamma model.
// Source: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice,
// and experience", CCPE 2007; Patarasuk and Yuan, JPDC 2009, for the bandwidth of all-reduce.
//
// Threads: pure functions.
#pragma once

#include "bench/link_model.h"
#include "sched/collective/registry.h"

namespace sinew::bench {

// Each term separately: rounds, bytes and reduced as in sched::Cost. No algorithm need reach all at
// once.
[[nodiscard]] sched::Cost lower_bound(sched::Collective op, int world);

// The largest of the three terms, with the fastest links seen: with full overlap of latency,
// transfer and arithmetic, time is at least this.
[[nodiscard]] double bound_s(sched::Collective op, int world, double bytes, const LinkModel& links);

// The closed form: its rounds, each of a message of the average size, and its reductions, without
// overlap. With uniform links this is rounds * alpha + bytes * beta + reduced * gamma.
[[nodiscard]] double predicted_s(const sched::Cost& cost, double bytes, const LinkModel& links);

}  // namespace sinew::bench
