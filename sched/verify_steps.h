// The parts of the proof that look at one step, or at two steps of one rank or lane: form, messages
// and races. verify.h tells what each of them means.
//
// Never does: execute.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sched/matching.h"
#include "sched/schedule.h"

namespace sinew::sched {

// A step to show, and what to say beside it.
struct StepMark {
  int rank = 0;
  std::uint32_t step = 0;
  std::string note;
};

struct Finding {
  std::string failure;  // empty: nothing found
  std::vector<StepMark> marks;
};

[[nodiscard]] Finding check_form(const Schedule& schedule);
// These require the form.
[[nodiscard]] Finding check_messages(const Schedule& schedule, const Matching& matching);
[[nodiscard]] Finding check_races(const Schedule& schedule);

// "output[3]", for slot + offset.
[[nodiscard]] std::string slot_name(Slot slot, std::uint32_t offset);

}  // namespace sinew::sched
