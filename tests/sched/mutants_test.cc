// Mutants: every single small damage to a right schedule is found by verify. A damage that is not
// found must be none: the damaged schedule then still gives the contract's numbers, in and out of
// place, whatever the order of its steps; an independent interpreter decides that.
//
//   drop      a step is gone
//   unwait    a dependence is gone
//   redirect  a message goes to, or comes from, another rank
//   shift     a slot is the one before or behind
//   retype    a step is another verb
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "sched/collective/registry.h"
#include "sched/verify.h"
#include "tests/sched/interpreter.h"

namespace sinew::sched {
namespace {

struct Mutant {
  std::string kind;
  std::string what;
  Schedule schedule;
};

std::vector<std::uint32_t> dependences_of(const Program& program, std::size_t step) {
  std::size_t first = 0;
  for (std::size_t i = 0; i < step; ++i) first += program.steps[i].dependences;
  const auto begin = program.dependences.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + program.steps[step].dependences};
}

// The program without one step; whoever waited for it waits for nothing instead.
Program without_step(const Program& program, std::size_t gone) {
  Program out;
  out.scratch_chunk = program.scratch_chunk;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    if (i == gone) continue;
    Step step = program.steps[i];
    if (i == gone + 1) step.joined = 0;
    step.dependences = 0;
    for (std::uint32_t wait : dependences_of(program, i)) {
      if (wait == gone) continue;
      out.dependences.push_back(wait > gone ? wait - 1 : wait);
      ++step.dependences;
    }
    out.steps.push_back(step);
  }
  return out;
}

Program without_dependence(const Program& program, std::size_t step, std::size_t which) {
  Program out = program;
  std::size_t first = 0;
  for (std::size_t i = 0; i < step; ++i) first += program.steps[i].dependences;
  out.dependences.erase(out.dependences.begin() + static_cast<std::ptrdiff_t>(first + which));
  --out.steps[step].dependences;
  return out;
}

// Whether a step waits for another also by what it waits for besides, so that nothing is lost
// without that wait.
bool is_implied(const Program& program, std::size_t step, std::size_t which) {
  std::vector<std::uint32_t> from;
  const auto waits = dependences_of(program, step);
  const std::uint32_t wanted = waits[which];
  for (std::size_t d = 0; d < waits.size(); ++d) {
    if (d != which) from.push_back(waits[d]);
  }
  while (!from.empty()) {
    const std::uint32_t at = from.back();
    from.pop_back();
    if (at == wanted) return true;
    for (const std::uint32_t wait : dependences_of(program, at)) from.push_back(wait);
  }
  return false;
}

bool is_message(Verb verb) {
  return verb == Verb::kSend || verb == Verb::kRecv || verb == Verb::kRecvReduce;
}

// The step as another verb, its unused fields as that verb has them.
Step retyped(Step step, Verb verb, int rank, int world) {
  const bool was_message = is_message(step.verb);
  step.verb = verb;
  if (is_message(verb) && !was_message) step.peer = static_cast<std::uint16_t>((rank + 1) % world);
  if (!is_message(verb)) {
    step.peer = static_cast<std::uint16_t>(rank);
    step.lane = 0;
    step.joined = 0;
  }
  if (verb == Verb::kSend) step.target = step.source;
  if (verb == Verb::kRecv) step.source = step.target;
  return step;
}

Slot shifted(Slot slot, int by) {
  return Slot::of(slot.space(), slot.index() + static_cast<std::uint32_t>(by));
}

template <typename Visit>
void for_each_mutant(const Schedule& schedule, Visit visit) {
  const int world = schedule.contract.world;
  for (int rank = 0; rank < world; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const Program& program = schedule.programs[at];
    const auto emit = [&](const std::string& kind, std::size_t step, Program changed) {
      Mutant mutant{
          kind,
          fmt::format("{} of rank {} step {}: {}", kind, rank, step, describe(program.steps[step])),
          schedule};
      mutant.schedule.programs[at] = std::move(changed);
      visit(mutant);
    };
    const auto change = [&](const std::string& kind, std::size_t step, const Step& changed) {
      Program out = program;
      out.steps[step] = changed;
      emit(kind, step, std::move(out));
    };
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      const Step& step = program.steps[i];
      emit("drop", i, without_step(program, i));
      for (std::size_t d = 0; d < step.dependences; ++d) {
        if (!is_implied(program, i, d)) emit("unwait", i, without_dependence(program, i, d));
      }
      if (is_message(step.verb)) {
        for (int by = 1; by < world; ++by) {
          Step other = step;
          other.peer = static_cast<std::uint16_t>((step.peer + by) % world);
          change("redirect", i, other);
        }
      }
      for (const int by : {-1, 1}) {
        if (step.verb != Verb::kRecv && static_cast<int>(step.source.index()) + by >= 0) {
          Step other = step;
          other.source = shifted(step.source, by);
          if (step.verb == Verb::kSend) other.target = other.source;
          change("shift", i, other);
        }
        if (step.verb != Verb::kSend && static_cast<int>(step.target.index()) + by >= 0) {
          Step other = step;
          other.target = shifted(step.target, by);
          if (step.verb == Verb::kRecv) other.source = other.target;
          change("shift", i, other);
        }
      }
      for (const Verb verb :
           {Verb::kSend, Verb::kRecv, Verb::kRecvReduce, Verb::kCopy, Verb::kReduce}) {
        if (verb != step.verb) change("retype", i, retyped(step, verb, rank, world));
      }
    }
  }
}

// Right in every run: three random orders, in place and out of place.
bool gives_right_numbers(const Schedule& schedule) {
  for (const Placement placement : {Placement::kInPlace, Placement::kOutOfPlace}) {
    for (std::uint32_t seed = 1; seed <= 3; ++seed) {
      Interpreter interpreter(schedule, placement, seed);
      if (!interpreter.run() || !interpreter.right()) return false;
    }
  }
  return true;
}

TEST(Mutants, AreAllKilledOrChangeNothing) {
  std::map<std::string, int> made;
  for (const Algorithm& row : algorithms()) {
    for (const int world : {2, 3, 4, 5, 8}) {
      const Params params = {.world = world, .root = world / 2};
      if (!row.refuse(params).empty()) continue;
      for_each_mutant(generate(row, params), [&](const Mutant& mutant) {
        ++made[mutant.kind];
        if (!verify(mutant.schedule).proved()) return;
        const std::string name =
            fmt::format("{}/{} world {}: {}", name_of(row.op), row.name, world, mutant.what);
        EXPECT_TRUE(gives_right_numbers(mutant.schedule)) << name;
        // A barrier may hear of a rank twice; nothing else may change and stay right.
        EXPECT_TRUE(row.op == Collective::kBarrier && mutant.kind == "retype") << name;
      });
    }
  }
  for (const char* kind : {"drop", "unwait", "redirect", "shift", "retype"}) {
    EXPECT_GE(made[kind], 1000) << kind;
  }
}

}  // namespace
}  // namespace sinew::sched
