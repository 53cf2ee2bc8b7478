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
};

struct PlanStep {
  static constexpr std::int32_t kNone = -1;
  sched::Verb verb;
  std::uint8_t lane;
  std::uint16_t peer;
  sched::Slot source;
  sched::Slot target;
  std::uint16_t chunks;
  bool
      exposable;  // a send whose receiver may read its source: nothing deadlocks for want of a copy
  std::uint32_t dependences;
  std::uint32_t first_dependence;
  std::int32_t
      before;  // the previous step of this kind (send or receive) on the same peer and lane
};

struct Plan {
  sched::Contract contract;
  int rank = 0;
  std::vector<PlanStep> steps;
  std::vector<PlanDependence> dependences;
  std::vector<std::uint32_t> scratch_chunk;
};

// Throws UsageError when the program uses more lanes than transports have.
// unbuffered: whether it was found to complete without buffering any message (rendezvous.h).
[[nodiscard]] Plan compile(const sched::Schedule& schedule, int rank, bool unbuffered);

class PlanCache {
 public:
  PlanCache(int rank, int world) : rank_(rank), world_(world) {}
  // algorithm: index into sched::algorithms(). Throws UsageError when it refuses this world.
  [[nodiscard]] const Plan& get(std::uint8_t algorithm, int root) {
    if (last_ != nullptr && last_algorithm_ == algorithm && last_root_ == root) return *last_;
    return find(algorithm, root);
  }

 private:
  const Plan& find(std::uint8_t algorithm, int root);

  int rank_;
  int world_;
  const Plan* last_ = nullptr;
  std::uint8_t last_algorithm_ = 0;
  int last_root_ = 0;
  std::map<std::pair<int, int>, std::unique_ptr<Plan>> plans_;
};

}  // namespace sinew::comm
