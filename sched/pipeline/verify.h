// verify: proves the five invariants of a PipeSchedule (schedule.h) for this p, v and m, or shows
// where it breaks.
//
// Never does: assume a generator; any schedule may come, also one read from a file or mutated by a
// test. Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sched/pipeline/schedule.h"

namespace sinew::sched {

// What the proof counted.
struct PipeFacts {
  bool splits_backward = false;
  std::vector<int>
      peak_live;     // [ranks], (stage, microbatch) inputs held at once, from F to the last use
  int messages = 0;  // sends over all ranks; as many receives
  // Messages a stream must be able to hold so that nothing deadlocks: 0 means that a send may even
  // wait for its receive (rendezvous).
  int credits = 0;
};

struct PipeVerdict {
  std::string
      failure;  // empty: proved. Else one line: the invariant, the actions and ranks that break it
  std::string
      drawing;  // the programs around the failure with the actions marked, a line or two per rank
  PipeFacts facts;  // filled when proved
  [[nodiscard]] bool proved() const { return failure.empty(); }
};

// Stops at the first failure in the order of the invariants; O(actions log actions).
[[nodiscard]] PipeVerdict verify(const PipeSchedule& schedule);

// Messages need not be written by hand: where a schedule has none at all, they are inserted.
[[nodiscard]] PipeSchedule with_messages(PipeSchedule written);

// A schedule from a file's text, ready to run: parsed, messages inserted where it has none, proved.
// Throws UsageError with what the parser or the proof says against it.
[[nodiscard]] PipeSchedule load_pipe_schedule(std::string_view text);

}  // namespace sinew::sched
