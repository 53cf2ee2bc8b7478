#include "comm/plan.h"

#include <string>

#include "comm/transport.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::comm {

namespace {

// Consecutive slots of one place. Input and Output of a chunk count as one place: they may be the same memory.
struct Range {
  bool scratch;
  std::uint32_t first;
  std::uint32_t end;
};

Range range_of(sched::Slot slot, std::uint16_t chunks) {
  return {slot.space() == sched::Space::kScratch, slot.index(), slot.index() + chunks};
}

bool overlap(const Range& a, const Range& b) {
  return a.scratch == b.scratch && a.first < b.end && b.first < a.end;
}

bool needs_whole(const sched::Step& step, const sched::Step& earlier) {
  for (const sched::Slot mine : {step.source, step.target}) {
    for (const sched::Slot theirs : {earlier.source, earlier.target}) {
      const Range a = range_of(mine, step.chunks);
      const Range b = range_of(theirs, earlier.chunks);
      if (overlap(a, b) && a.first != b.first) return true;
    }
  }
  return false;
}

enum class Side : std::uint8_t { kSend, kReceive, kLocal };

Side side_of(sched::Verb verb) {
  switch (verb) {
    case sched::Verb::kSend: return Side::kSend;
    case sched::Verb::kRecv:
    case sched::Verb::kRecvReduce: return Side::kReceive;
    case sched::Verb::kCopy:
    case sched::Verb::kReduce: return Side::kLocal;
  }
  return Side::kLocal;
}

std::int32_t find_before(const std::vector<PlanStep>& steps, const sched::Step& step) {
  const Side side = side_of(step.verb);
  if (side == Side::kLocal) return PlanStep::kNone;
  for (std::size_t i = steps.size(); i-- > 0;) {
    const PlanStep& earlier = steps[i];
    if (side_of(earlier.verb) == side && earlier.peer == step.peer && earlier.lane == step.lane) {
      return static_cast<std::int32_t>(i);
    }
  }
  return PlanStep::kNone;
}

}  // namespace

Plan compile(const sched::Schedule& schedule, int rank) {
  CHECK_LT(static_cast<std::size_t>(rank), schedule.programs.size());
  const sched::Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  Plan plan{.contract = schedule.contract, .rank = rank, .steps = {}, .dependences = {}, .scratch_chunk = program.scratch_chunk};
  std::size_t next = 0;
  for (const sched::Step& step : program.steps) {
    if (step.lane >= kLanesPerChannel) {
      throw UsageError("schedule '" + schedule.name + "' uses lane " + std::to_string(step.lane) +
                       "; transports have lanes 0 to " + std::to_string(kLanesPerChannel - 1));
    }
    plan.steps.push_back({step.verb, step.lane, step.peer, step.source, step.target, step.chunks, step.dependences,
                          static_cast<std::uint32_t>(next), find_before(plan.steps, step)});
    for (std::uint16_t i = 0; i < step.dependences; ++i) {
      const std::uint32_t earlier = program.dependences[next++];
      CHECK_LT(earlier, plan.steps.size() - 1);
      plan.dependences.push_back({earlier, needs_whole(step, program.steps[earlier])});
    }
  }
  CHECK_EQ(next, program.dependences.size());
  return plan;
}

const Plan& PlanCache::find(std::uint8_t algorithm, int root) {
  std::unique_ptr<Plan>& plan = plans_[{algorithm, root}];
  if (plan == nullptr) {
    const sched::Params params{.world = world_, .root = root};
    plan = std::make_unique<Plan>(compile(sched::generate(sched::algorithms()[algorithm], params, rank_), rank_));
  }
  last_ = plan.get();
  last_algorithm_ = algorithm;
  last_root_ = root;
  return *plan;
}

}  // namespace sinew::comm
