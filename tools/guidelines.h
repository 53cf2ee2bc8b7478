// Guidelines: what the times of collectives owe each other. An operation that is slower than a way
// to compute it from others, or than itself on a larger vector, has a better algorithm at hand.
//
// Source: Traeff, Gropp, Thakur, "Self-consistent MPI performance guidelines", TPDS 2010.
// Never does: measure. Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sched/collective/contract.h"

namespace sinew::tools {

// Seconds by bytes of the full vector, of each operation's best algorithm.
using TimesBySize = std::map<std::int64_t, double>;
using TimesByOp = std::map<sched::Collective, TimesBySize>;

// So many calls of an operation on a full vector of so many bytes.
struct Term {
  sched::Collective op = sched::Collective::kBarrier;
  std::int64_t bytes = 0;
  std::int64_t calls = 1;
};

struct Violation {
  std::string guideline;  // "all_reduce <= reduce + broadcast"
  Term taken;
  std::vector<Term> allowed;  // one after the other
  double taken_s = 0;
  double allowed_s = 0;
};

// All that exceed what they owe by more than `tolerance` times. Sizes that only one side has are
// not compared. The guidelines:
//   all_reduce <= reduce + broadcast; <= reduce_scatter + all_gather
//   reduce, reduce_scatter, all_gather, broadcast <= all_reduce; gather <= all_gather
//   barrier <= all_reduce of the smallest size
//   t(a) <= t(b) and t(b) <= ceil(b/a) t(a) for neighbouring sizes 0 < a < b of any operation
[[nodiscard]] std::vector<Violation> violations(const TimesByOp& times, double tolerance);

}  // namespace sinew::tools
