// Rounds: a collective schedule as a lesson: which messages travel in which round, and what every
// rank holds after each, in the one-port model with messages of equal time.
//
// Never does: prove (verify.h). Requires a proved schedule; others may throw Error or show
// nonsense. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sched/schedule.h"

namespace sinew::sched {

struct RoundMessage {
  int from = 0;
  int to = 0;
  bool reduces = false;
  std::vector<int> chunks;
};

struct Round {
  std::vector<RoundMessage> messages;
  // [world][chunks]: the ranks whose contribution the rank's value of the chunk holds; 0 means it
  // has none. Of an all_to_all, chunks are numbered by their targets and many ranks have one of a
  // number: those whose chunk the rank holds.
  std::vector<std::vector<std::uint64_t>> held;
};

// Element 0 is the start, without messages. world must be at most 64. Ports serve in the order
// (PortOrder) that needs fewer rounds.
[[nodiscard]] std::vector<Round> rounds_of(const Schedule& schedule);

// The rounds as text: a line of messages per round, then a row of values per round. "0 -c2..3+-> 1"
// sends chunks 2 and 3 from rank 0 to 1, which adds them to its own; without '+' it keeps them.
// Values are the contributing ranks of each chunk, '*' all, '.' none.
[[nodiscard]] std::string draw_rounds(const Schedule& schedule);

// The rounds as a self-contained SVG: a line per rank, a column per round, an arrow per message;
// what a rank holds after a round is told by the dot there.
[[nodiscard]] std::string draw_rounds_svg(const Schedule& schedule);

// The words of both drawings: "2..3" or "0,2"; "*" holds all contributions, "." none, else the
// ranks that contributed.
[[nodiscard]] std::string name_of_chunks(const std::vector<int>& chunks);
[[nodiscard]] std::string name_of_held(std::uint64_t ranks, int world);

}  // namespace sinew::sched
