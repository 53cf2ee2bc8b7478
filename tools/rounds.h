// Rounds: a collective schedule as a lesson: which messages travel in which round, and what every
// rank holds after each, in the one-port model with messages of equal time.
//
// Never does: prove (sched/verify.h). Works for schedules that are proved; others may show
// nonsense. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "sched/schedule.h"

namespace sinew::tools {

struct Message {
  int from = 0;
  int to = 0;
  bool reduces = false;
  std::vector<int> chunks;
};

struct Round {
  std::vector<Message> messages;
  // [world][chunks]: the ranks whose contribution the rank's value of the chunk holds; 0 means it
  // has none.
  std::vector<std::vector<std::uint64_t>> held;
};

// Element 0 is the start, without messages. world must be at most 64.
[[nodiscard]] std::vector<Round> rounds_of(const sched::Schedule& schedule);

// The rounds as text: messages, then a row of values per round.
[[nodiscard]] std::string draw_rounds(const sched::Schedule& schedule);

}  // namespace sinew::tools
