// Places: what a step reads and writes, and the dependences that follow from it.
//
// Never does: judge a schedule (verify.h) or write one (builder.h).
// Threads: pure.
#pragma once

#include <cstddef>

#include "sched/schedule.h"

namespace sinew::sched {

// Input[c] and Output[c] are one place, scratch slots lie behind them.
[[nodiscard]] inline std::size_t place_of(const Contract& contract, Slot slot) {
  return (slot.space() == Space::kScratch ? static_cast<std::size_t>(contract.chunks()) : 0) +
         slot.index();
}

[[nodiscard]] inline bool reads_source(const Step& step) { return step.verb != Verb::kRecv; }
[[nodiscard]] inline bool reads_target(const Step& step) { return step.verb == Verb::kReduce; }
[[nodiscard]] inline bool writes_target(const Step& step) { return step.verb != Verb::kSend; }

// The same schedule with other dependences: each step waits for exactly those that it shares a
// place with, one of the two writing; of several that follow each other in one place, for the last.
// A text file may order steps over third ones, and steps that share nothing; an executor that goes
// byte by byte, and so waits place by place, needs those that share one.
//
// Requires a proved schedule, whose dependences order all steps that share a place. So the new ones
// order nothing that was not ordered: what was free of deadlock and races stays so.
// Throws UsageError when a step has more dependences than a Step can count.
[[nodiscard]] Schedule with_direct_dependences(const Schedule& schedule);

}  // namespace sinew::sched
