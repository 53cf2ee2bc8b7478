// verify: proves that a Schedule does what its Contract says, on any transport, at any timing, in
// place and out of place; or shows the first place where it does not.
//
// Never does: trust. Any Schedule may come: from a generator, a file, a test that broke it.
// Threads: pure.
//
// What is proved, in this order (the first that fails is reported)
//
//   1. Form: every slot exists and may be used so (Input is never written, a rank has only the
//      slots its contract gives it), dependences point backwards, unused fields are in their plain
//      form, ranges that a step reads and writes are the same or apart.
//   2. Messages: the i-th send of (source, target, lane) has an i-th receive, and both move chunks
//      of the same sizes.
//   3. No race: two steps of a rank that touch one place, one of them writing, are ordered by
//      dependences. Input[c] and Output[c] are one place.
//   4. No deadlock: all steps happen (order.h says why one order stands for all); the least credits
//      for that are facts.
//   5. No empty read: a slot is read after it was written; Input[c] is not read after Output[c] was
//      written, because in place it is gone.
//   6. Result: every output slot holds its chunk, reduced over exactly the contract's ranks, each
//      once (a barrier's token: at least once); and on all ranks of an all-reduce by the same
//      expression, so with the same bits.
//
// 5 and 6 are checked in one order of execution; 3 makes every other order give the same contents.
#pragma once

#include <cstdint>
#include <string>

#include "sched/cost.h"
#include "sched/schedule.h"

namespace sinew::sched {

struct Facts {
  // Messages a lane must be able to hold: when all steps whose dependences are met are in flight,
  // and when each step of a program blocks. 0: a send may even wait for its receive (rendezvous).
  // A message cut into k segments counts as k of them.
  int credits = 0;
  int credits_in_order = 0;
  // Whether each chunk is computed by one expression, up to commutativity, wherever it is put out.
  bool same_expression = false;
  // Counted: the three coefficients, each as the longest time with only it set to 1 (simulate.h),
  // with the schedule's own segments.
  Cost cost;
  int messages = 0;        // most messages sent by one rank
  int scratch_chunks = 0;  // most scratch slots of one rank
  double sent = 0;         // most sent by one rank, as a fraction of m
  double received = 0;     // most received by one rank, as a fraction of m
};

struct Verdict {
  std::string failure;  // empty: proved. Else one line: rank, step, what was expected and found
  std::string drawing;  // the programs around the failure, its steps marked
  Facts facts;          // meaningful when proved
  [[nodiscard]] bool proved() const { return failure.empty(); }
};

[[nodiscard]] Verdict verify(const Schedule& schedule);

}  // namespace sinew::sched
