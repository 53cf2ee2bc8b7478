// Traffic: what a rank's communicators move in training steps, counted and by formula.
//
// Never does: move anything. Threads: one rank, one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "model/layout.h"
#include "model/parallel.h"
#include "model/partial.h"
#include "sched/plan/run_shape.h"
#include "sched/plan/volume.h"

namespace sinew::model {

// The groups of Parallel that training steps use.
enum class Group : std::uint8_t {
  kTensor,
  kContext,
  kPipeline,
  kTie,
  kData,
  kCopies,
  kShard,
  kShardGroups
};
inline constexpr std::size_t kGroups = 8;
[[nodiscard]] std::string_view name_of(Group group);
// Null where this rank is in none.
[[nodiscard]] comm::Communicator* communicator_of(const Parallel& parallel, Group group);

// Sums over calls; for messages, over those this rank sent.
struct Amount {
  std::int64_t calls = 0;
  std::int64_t payload_bytes = 0;  // of the calls' whole arrays
  double sent_bytes = 0;           // by this rank
  // In calls and waits, those for late peers included; of tiny calls one in many is timed and
  // stands for all. Counted only.
  double seconds = 0;
  Amount& operator+=(const Amount& other);
};

// By group and pattern.
class Traffic {
 public:
  [[nodiscard]] Amount& at(Group group, sched::Pattern pattern);
  [[nodiscard]] const Amount& at(Group group, sched::Pattern pattern) const;
  // In calls and waits of all groups.
  [[nodiscard]] double seconds() const;
  // Adds (sign +1) or takes away (-1) what the communicators have counted so far: the two around a
  // step leave the step's.
  void add_counters(const Parallel& parallel, int sign);
  Traffic& operator+=(const Traffic& other);

 private:
  std::array<std::array<Amount, 4>, kGroups> amounts_;
};

// One step of this rank by formula: sched/plan/volume.h's, and what it leaves out: the sums of the
// gradient norm over tensor, pipeline and (ZeRO) data ranks, the sum of the number of targets over
// data ranks. Over data ranks every call moves one of `flat`'s units, padding included:
//   ZeRO 0     one all-reduce of each
//   ZeRO 1, 2  1 or m reduce-scatters and one all-gather of each
//   ZeRO 3     m reduce-scatters and m all-gathers of each, m more of those of layers (backward
//   uses
//              no other weights)
// Under hybrid sharding these are over the ranks of a group, and one all-reduce of a piece of each
// unit over the groups is added. Where a rank holds both ends of a tied model its table is used
// twice by a microbatch: under ZeRO 2 and 3 m more reduce-scatters of it, under 3 m more
// all-gathers. Partial gradients are summed within `owned`, the pieces of units that this rank
// updates.
[[nodiscard]] Traffic predict_traffic(const sched::RunShape& run,
                                      const sched::PipeSchedule& schedule,
                                      const sched::PerAxis& coordinates, const FlatLayout& flat,
                                      std::span<const Piece> owned, std::int64_t model_parameters);

}  // namespace sinew::model
