#include "comm/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "comm/rendezvous.h"
#include "comm/transport.h"
#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/places.h"

namespace sinew::comm {

namespace {

// Up to here generating and matching every rank's program takes milliseconds.
constexpr int kMostWorldToProve = 64;

using sched::Slot;
using sched::Space;
using sched::Step;
using sched::Verb;

// Consecutive slots of one place. Input and Output of a chunk count as one place: they may be the
// same memory.
struct Range {
  bool scratch;
  std::uint32_t first;
  std::uint32_t end;
};

Range range_of(Slot slot, std::uint16_t chunks) {
  return {slot.space() == Space::kScratch, slot.index(), slot.index() + chunks};
}

bool overlap(const Range& a, const Range& b) {
  return a.scratch == b.scratch && a.first < b.end && b.first < a.end;
}

bool receives(Verb verb) { return verb == Verb::kRecv || verb == Verb::kRecvReduce; }

PlanVerb verb_of(Verb verb) {
  switch (verb) {
    case Verb::kSend:
      return PlanVerb::kSend;
    case Verb::kRecv:
      return PlanVerb::kReceive;
    case Verb::kRecvReduce:
      return PlanVerb::kReduce;
    case Verb::kCopy:
      return PlanVerb::kCopy;
    case Verb::kReduce:
      return PlanVerb::kReduceLocal;
  }
  return PlanVerb::kCopy;
}

class Compiler {
 public:
  Compiler(const sched::Schedule& schedule, int rank, const CompileOptions& options)
      : schedule_(schedule),
        program_(schedule.programs[static_cast<std::size_t>(rank)]),
        options_(options) {
    plan_.contract = schedule.contract;
    plan_.rank = rank;
    plan_.unbuffered = options.unbuffered;
    plan_.scratch_chunk = program_.scratch_chunk;
    std::uint32_t next = 0;
    for (const Step& step : program_.steps) {
      plan_.receives |= receives(step.verb);
      plan_.forwards |= step.verb == Verb::kSend ? step.source.space() != Space::kInput
                                                 : step.target.space() != Space::kOutput;
      first_dependence_.push_back(next);
      next += step.dependences;
    }
    CHECK_EQ(next, program_.dependences.size());
  }

  Plan run() {
    const Chains chains = options_.fuse ? fuse(program_) : keep_apart(program_);
    place_.resize(program_.steps.size());
    for (std::uint32_t index = 0; index < chains.size(); ++index) {
      for (const std::uint32_t member : chains[index]) place_[member] = index;
    }
    for (const std::vector<std::uint32_t>& chain : chains) add(chain);
    return std::move(plan_);
  }

 private:
  void add(const std::vector<std::uint32_t>& chain) {
    const Step& step = program_.steps[chain.back()];
    const auto index = static_cast<std::uint32_t>(plan_.steps.size());
    const auto first_dependence = static_cast<std::uint32_t>(plan_.dependences.size());
    for (const std::uint32_t member : chain) add_dependences(member, index, first_dependence);
    PlanStep out{
        .verb = verb_of(step.verb),
        .lane = step.lane,
        .peer = step.peer,
        .chunks = step.chunks,
        .exposable = step.verb == Verb::kSend,
        .moved =
            step.dependences == 0 && options_.moved != nullptr && (*options_.moved)[chain.back()],
        .last = step.verb != Verb::kSend && step.target.space() == Space::kOutput,
        .source = step.source,
        .target = step.target,
        .dependences = static_cast<std::uint32_t>(plan_.dependences.size()) - first_dependence,
        .first_dependence = first_dependence,
        .operands = 0,
        .first_operand = static_cast<std::uint32_t>(plan_.operands.size()),
        .before = PlanStep::kNone,
        .after = PlanStep::kNone};
    if (chain.size() > 1) {
      out.verb = PlanVerb::kReduceMany;
      out.source = out.target;
      for (const std::uint32_t member : chain) add_operands(member, member == chain.front());
      out.operands = static_cast<std::uint32_t>(plan_.operands.size()) - out.first_operand;
    } else if (step.verb != Verb::kCopy && step.verb != Verb::kReduce) {
      out.before = find_before(step, chain.back());
      if (receives(step.verb) && out.before != PlanStep::kNone)
        plan_.steps[static_cast<std::size_t>(out.before)].after = static_cast<std::int32_t>(index);
    }
    plan_.steps.push_back(out);
  }

  void add_operands(std::uint32_t member, bool first) {
    const Step& step = program_.steps[member];
    const auto add_slot = [&](Slot slot) {
      plan_.operands.push_back(
          {.is_message = false, .lane = 0, .peer = 0, .before = PlanStep::kNone, .slot = slot});
    };
    if (first && step.verb == Verb::kRecvReduce) add_slot(step.source);
    if (first && step.verb == Verb::kReduce) add_slot(step.target);
    if (step.verb == Verb::kReduce) {
      add_slot(step.source);
      return;
    }
    if (step.lane >= kLanesPerChannel) refuse_lane(step.lane);
    plan_.operands.push_back({.is_message = true,
                              .lane = step.lane,
                              .peer = step.peer,
                              .before = find_before(step, member),
                              .slot = step.target});
  }

  // first: where the plan step's dependences begin.
  void add_dependences(std::uint32_t member, std::uint32_t index, std::uint32_t first) {
    const Step& step = program_.steps[member];
    for (std::uint16_t i = 0; i < step.dependences; ++i) {
      const std::uint32_t earlier = program_.dependences[first_dependence_[member] + i];
      const std::uint32_t place = place_[earlier];
      if (place == index) continue;
      CHECK_LT(place, index);
      add_places(step, program_.steps[earlier], place, first);
      // Whoever waits for a send will overwrite its source.
      if (!options_.unbuffered) plan_.steps[place].exposable = false;
      plan_.steps[place].last = false;
    }
  }

  void add_places(const Step& step, const Step& earlier, std::uint32_t place, std::uint32_t first) {
    bool any = false;
    for (const Slot mine : {step.source, step.target}) {
      for (const Slot theirs : {earlier.source, earlier.target}) {
        if (!overlap(range_of(mine, step.chunks), range_of(theirs, earlier.chunks))) continue;
        any = true;
        const PlanDependence dependence{place, mine, theirs};
        if (std::find(plan_.dependences.begin() + first, plan_.dependences.end(), dependence) ==
            plan_.dependences.end()) {
          plan_.dependences.push_back(dependence);
        }
      }
    }
    CHECK(any);
  }

  // The last earlier step of the program with the same direction, peer and lane.
  [[nodiscard]] std::int32_t find_before(const Step& step, std::uint32_t index) const {
    if (step.lane >= kLanesPerChannel) refuse_lane(step.lane);
    for (std::uint32_t i = index; i-- > 0;) {
      const Step& earlier = program_.steps[i];
      const bool same_side =
          step.verb == Verb::kSend ? earlier.verb == Verb::kSend : receives(earlier.verb);
      if (same_side && earlier.peer == step.peer && earlier.lane == step.lane) {
        return static_cast<std::int32_t>(place_[i]);
      }
    }
    return PlanStep::kNone;
  }

  [[noreturn]] void refuse_lane(int lane) const {
    throw UsageError("schedule '" + schedule_.name + "' uses lane " + std::to_string(lane) +
                     "; transports have lanes 0 to " + std::to_string(kLanesPerChannel - 1));
  }

  const sched::Schedule& schedule_;
  const sched::Program& program_;
  CompileOptions options_;
  std::vector<std::uint32_t> first_dependence_;
  std::vector<std::uint32_t> place_;  // [program steps]: the plan step it is part of
  Plan plan_;
};

// [steps of rank's program]: the sends met by a receive that stays a step of its own and only puts
// the message into its place. The i-th send of a lane meets its i-th receive.
std::vector<bool> find_moved(const sched::Schedule& schedule, int rank,
                             const std::vector<Chains>& chains) {
  const auto own = static_cast<std::size_t>(rank);
  std::map<std::pair<int, int>, std::vector<bool>> taken;  // by peer and lane, in program order
  for (std::size_t peer = 0; peer < schedule.programs.size(); ++peer) {
    const std::vector<Step>& steps = schedule.programs[peer].steps;
    std::vector<bool> alone(steps.size(), false);
    for (const std::vector<std::uint32_t>& chain : chains[peer]) {
      if (chain.size() == 1) alone[chain.front()] = true;
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!receives(steps[i].verb) || steps[i].peer != own) continue;
      taken[{static_cast<int>(peer), steps[i].lane}].push_back(alone[i] &&
                                                               steps[i].verb == Verb::kRecv);
    }
  }
  const std::vector<Step>& steps = schedule.programs[own].steps;
  std::vector<bool> moved(steps.size(), false);
  std::map<std::pair<int, int>, std::size_t> sent;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].verb != Verb::kSend) continue;
    const std::pair<int, int> lane{steps[i].peer, steps[i].lane};
    const std::size_t index = sent[lane]++;
    CHECK_LT(index, taken[lane].size());
    moved[i] = taken[lane][index];
  }
  return moved;
}

// Whether two slots are one place where input and output do not overlap.
bool same_place(Slot a, std::uint16_t a_chunks, Slot b, std::uint16_t b_chunks) {
  return a.space() == b.space() && overlap(range_of(a, a_chunks), range_of(b, b_chunks));
}

// Without the dependences that only serve calls in place.
sched::Schedule for_apart(sched::Schedule schedule) {
  for (sched::Program& program : schedule.programs) {
    std::vector<std::uint32_t> kept;
    std::size_t next = 0;
    for (Step& step : program.steps) {
      const std::size_t end = next + step.dependences;
      const std::size_t before = kept.size();
      for (; next < end; ++next) {
        const Step& earlier = program.steps[program.dependences[next]];
        bool any = false;
        for (const Slot mine : {step.source, step.target}) {
          for (const Slot theirs : {earlier.source, earlier.target})
            any |= same_place(mine, step.chunks, theirs, earlier.chunks);
        }
        if (any) kept.push_back(program.dependences[next]);
      }
      step.dependences = static_cast<std::uint16_t>(kept.size() - before);
    }
    program.dependences = std::move(kept);
  }
  return schedule;
}

}  // namespace

Plan compile(const sched::Schedule& schedule, int rank, const CompileOptions& options) {
  CHECK_LT(static_cast<std::size_t>(rank), schedule.programs.size());
  return Compiler(schedule, rank, options).run();
}

Plan compile_whole(const sched::Schedule& schedule, int rank, bool may_fuse) {
  std::vector<Chains> fused;
  std::vector<Chains> apart;
  for (const sched::Program& program : schedule.programs) {
    fused.push_back(fuse(program));
    apart.push_back(keep_apart(program));
  }
  const bool fused_exposes = may_fuse && completes(schedule, fused, Buffers::kNone);
  const bool exposes = fused_exposes || completes(schedule, apart, Buffers::kNone);
  // Where messages are copied in any case, one pass costs none more.
  const bool fuses =
      fused_exposes || (may_fuse && !exposes && completes(schedule, fused, Buffers::kOneEachLane));
  const std::vector<Chains>& chains = fuses ? fused : apart;
  const std::vector<bool> moved = find_moved(schedule, rank, chains);
  return compile(schedule, rank, {.unbuffered = exposes, .fuse = fuses, .moved = &moved});
}

const Plan& PlanCache::find(std::uint16_t algorithm, int root, bool apart) {
  std::unique_ptr<Plan>& plan = plans_[{algorithm, root, apart}];
  if (plan == nullptr) {
    const sched::Params params{.world = world_, .root = root, .group = group_};
    const sched::Algorithm& row = sched::every_algorithm()[algorithm];
    const bool whole = world_ <= kMostWorldToProve;
    // A generator leaves out waits that others imply; that holds of whole steps, not of their
    // bytes.
    sched::Schedule schedule = sched::with_direct_dependences(
        whole ? sched::generate(row, params) : sched::generate(row, params, rank_));
    if (whole) {
      if (apart) schedule = for_apart(std::move(schedule));
      plan = std::make_unique<Plan>(compile_whole(schedule, rank_, fuse_));
    } else {
      plan = std::make_unique<Plan>(compile(schedule, rank_, {.unbuffered = false, .fuse = false}));
    }
  }
  last_ = plan.get();
  last_algorithm_ = algorithm;
  last_root_ = root;
  last_apart_ = apart;
  return *plan;
}

}  // namespace sinew::comm
