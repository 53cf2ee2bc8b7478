#include "comm/plan.h"

#include <algorithm>
#include <optional>
#include <string>

#include "comm/rendezvous.h"
#include "comm/transport.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::comm {

namespace {

// Up to here generating every rank's program takes milliseconds.
constexpr int kMostWorldToProve = 64;

// Consecutive slots of one place. Input and Output of a chunk count as one place: they may be the
// same memory.
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

void add_dependences(const sched::Step& step, std::uint32_t index, const sched::Step& earlier,
                     std::vector<PlanDependence>& out) {
  const std::size_t before = out.size();
  for (const sched::Slot mine : {step.source, step.target}) {
    for (const sched::Slot theirs : {earlier.source, earlier.target}) {
      if (!overlap(range_of(mine, step.chunks), range_of(theirs, earlier.chunks))) continue;
      const bool known =
          std::any_of(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(),
                      [&](const auto& d) { return d.slot == mine && d.earlier_slot == theirs; });
      if (!known) out.push_back({index, mine, theirs});
    }
  }
  CHECK_GT(out.size(), before);
}

enum class Side : std::uint8_t { kSend, kReceive, kLocal };

Side side_of(sched::Verb verb) {
  switch (verb) {
    case sched::Verb::kSend:
      return Side::kSend;
    case sched::Verb::kRecv:
    case sched::Verb::kRecvReduce:
      return Side::kReceive;
    case sched::Verb::kCopy:
    case sched::Verb::kReduce:
      return Side::kLocal;
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

Plan compile(const sched::Schedule& schedule, int rank, bool unbuffered) {
  CHECK_LT(static_cast<std::size_t>(rank), schedule.programs.size());
  const sched::Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  Plan plan{.contract = schedule.contract,
            .rank = rank,
            .steps = {},
            .dependences = {},
            .scratch_chunk = program.scratch_chunk};
  std::size_t next = 0;
  for (const sched::Step& step : program.steps) {
    if (step.lane >= kLanesPerChannel) {
      throw UsageError("schedule '" + schedule.name + "' uses lane " + std::to_string(step.lane) +
                       "; transports have lanes 0 to " + std::to_string(kLanesPerChannel - 1));
    }
    const auto first = static_cast<std::uint32_t>(plan.dependences.size());
    for (std::uint16_t i = 0; i < step.dependences; ++i) {
      const std::uint32_t earlier = program.dependences[next++];
      CHECK_LT(earlier, plan.steps.size());
      add_dependences(step, earlier, program.steps[earlier], plan.dependences);
      // Whoever waits for a send will overwrite its source.
      if (!unbuffered) plan.steps[earlier].exposable = false;
    }
    plan.steps.push_back(
        {.verb = step.verb,
         .lane = step.lane,
         .peer = step.peer,
         .source = step.source,
         .target = step.target,
         .chunks = step.chunks,
         .exposable = step.verb == sched::Verb::kSend,
         .dependences = static_cast<std::uint32_t>(plan.dependences.size()) - first,
         .first_dependence = first,
         .before = find_before(plan.steps, step)});
  }
  CHECK_EQ(next, program.dependences.size());
  return plan;
}

const Plan& PlanCache::find(std::uint8_t algorithm, int root) {
  std::unique_ptr<Plan>& plan = plans_[{algorithm, root}];
  if (plan == nullptr) {
    const sched::Params params{.world = world_, .root = root};
    const sched::Algorithm& row = sched::algorithms()[algorithm];
    // All ranks' programs are needed to see whether messages must be buffered; large worlds assume
    // they must.
    const bool small = world_ <= kMostWorldToProve;
    const sched::Schedule schedule =
        sched::generate(row, params, small ? std::nullopt : std::optional<int>(rank_));
    plan =
        std::make_unique<Plan>(compile(schedule, rank_, small && completes_unbuffered(schedule)));
  }
  last_ = plan.get();
  last_algorithm_ = algorithm;
  last_root_ = root;
  return *plan;
}

}  // namespace sinew::comm
