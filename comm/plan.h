// Plan: one rank's program, compiled for the executor: flat, with the questions that do not depend
// on sizes and pointers answered. Cached by (collective, algorithm, root); world and rank are the
// communicator's.
//
// Never does: know counts, types or addresses; run.
// Threads: const once built.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "sched/collective/registry.h"
#include "sched/schedule.h"

namespace sinew::comm {

// Two steps touch the same place. Byte x of the later one's slot needs the earlier one to have
// passed the byte at the same address; where the slots begin at different addresses, that is
// another x.
struct PlanDependence {
  std::uint32_t step;  // the earlier
  sched::Slot slot;    // the later one's
  sched::Slot earlier_slot;
  friend bool operator==(const PlanDependence&, const PlanDependence&) = default;
};

enum class PlanVerb : std::uint8_t {
  kSend,
  kReceive,     // target <- message
  kReduce,      // target <- source (+) message
  kReduceMany,  // target <- operand (+) operand (+) ..., in order: what consecutive reductions into
                // one place become
  kCopy,        // local: target <- source
  kReduceLocal,  // local: target <- target (+) source
};

// One input of kReduceMany.
struct PlanOperand {
  bool is_message;
  std::uint8_t lane;
  std::uint16_t peer;
  std::int32_t before;  // of a message: as in PlanStep
  sched::Slot slot;     // else
};

struct PlanStep {
  static constexpr std::int32_t kNone = -1;
  PlanVerb verb;
  std::uint8_t lane;
  std::uint16_t peer;
  std::uint16_t chunks;
  bool
      exposable;  // a send whose receiver may read its source: nothing deadlocks for want of a copy
  bool moved;     // a send of what the caller passed, which its receiver puts where it stays
  bool last;      // writes an output that no later step touches
  sched::Slot source;
  sched::Slot target;
  std::uint32_t dependences;
  std::uint32_t first_dependence;
  std::uint32_t operands;  // of kReduceMany
  std::uint32_t first_operand;
  std::int32_t before;  // the previous step that sends to, or receives from, the same peer and lane
  std::int32_t after;   // of a receive: the next one, where that is a step of its own
};

struct Plan {
  sched::Contract contract;
  int rank = 0;
  std::vector<PlanStep> steps;
  std::vector<PlanDependence> dependences;
  std::vector<PlanOperand> operands;
  std::vector<std::uint32_t> scratch_chunk;
  bool receives = false;    // any message
  bool unbuffered = false;  // as CompileOptions
  bool forwards = false;    // sends what is not the caller's input, or receives what is not output
};

struct CompileOptions {
  bool unbuffered =
      false;  // the schedule was found to complete without buffering any message (rendezvous.h)
  bool fuse = true;  // consecutive reductions into one place become one pass over all their sources
  const std::vector<bool>* moved = nullptr;  // [program steps]: PlanStep::moved, where it is known
};

// Throws UsageError when the program uses more lanes than transports have.
[[nodiscard]] Plan compile(const sched::Schedule& schedule, int rank,
                           const CompileOptions& options);

// Of a schedule that holds all ranks' programs: finds out what may be exposed and fused without a
// deadlock.
[[nodiscard]] Plan compile_whole(const sched::Schedule& schedule, int rank, bool may_fuse);

class PlanCache {
 public:
  // group: Params::group of every plan.
  PlanCache(int rank, int world, bool fuse, int group = 0)
      : rank_(rank), world_(world), group_(group), fuse_(fuse) {}
  // algorithm: index into sched::every_algorithm(). Throws UsageError when it refuses this world.
  // apart: for buffers that do not overlap, so that nothing waits for its own input to be sent.
  [[nodiscard]] const Plan& get(std::uint16_t algorithm, int root, bool apart = false) {
    if (last_ != nullptr && last_algorithm_ == algorithm && last_root_ == root &&
        last_apart_ == apart)
      return *last_;
    return find(algorithm, root, apart);
  }

 private:
  const Plan& find(std::uint16_t algorithm, int root, bool apart);

  int rank_;
  int world_;
  int group_;
  bool fuse_;
  const Plan* last_ = nullptr;
  std::uint16_t last_algorithm_ = 0;
  int last_root_ = 0;
  bool last_apart_ = false;
  std::map<std::tuple<int, int, bool>, std::unique_ptr<Plan>> plans_;
};

}  // namespace sinew::comm
