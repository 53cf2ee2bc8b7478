// Fusion: which steps of a program are one reduction over many sources. A run of reductions into
// one place,
//   a <- m1;  a <- a (+) m2;  a <- a (+) x;  b <- a (+) m3
// becomes b <- m1 (+) m2 (+) x (+) m3: the same operations in the same order, so the same bits, but
// every source is read once, the intermediate values never reach memory, and 16-bit floats are
// rounded once instead of at each step.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/schedule.h"

namespace sinew::comm {

// Steps that become one, in program order; a step that stays alone is a chain of one. Chains are
// ordered by their last steps, and each keeps the place of its last step.
using Chains = std::vector<std::vector<std::uint32_t>>;

[[nodiscard]] Chains fuse(const sched::Program& program);
// Every step alone.
[[nodiscard]] Chains keep_apart(const sched::Program& program);

}  // namespace sinew::comm
