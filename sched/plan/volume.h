// Volume: what a rank sends in one training step, axis by axis, by formula.
//
// Never does: count what was sent (the communicator does and is held against this), or include the
// few scalars of losses and norms. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sched/plan/run_shape.h"

namespace sinew::sched {

enum class Pattern : std::uint8_t { kAllReduce, kReduceScatter, kAllGather, kMessage };
[[nodiscard]] std::string_view name_of(Pattern pattern);

// When the calls of a kind happen.
enum class Phase : std::uint8_t {
  kForward,
  kBackward,
  kStep
};  // of each microbatch, or once per step

// The two sums over tensor ranks that are made once per step: of norms' gradients under sequence
// parallelism, over all tensor ranks; of key/value matrices', over those that hold copies of them.
inline constexpr std::string_view kNormGradients = "norm gradients";
inline constexpr std::string_view kCopiesGradients = "copied key/value gradients";

// Calls of one kind on one rank in one step.
struct Traffic {
  Axis axis = Axis::kTp;  // kDp stands for dp x cp, over which gradients are summed
  std::string what;       // "layer sums", "activations to the next stage", ...
  Pattern pattern = Pattern::kAllReduce;
  Phase phase = Phase::kForward;
  int ranks = 1;           // in the group
  std::int64_t calls = 0;  // per step
  std::int64_t elements =
      0;  // of one call: the whole array, for scatter and gather too; of one message
  int element_bytes = 4;

  // Sent by one rank in one step when bandwidth-optimal, in elements:
  //   all-reduce 2 (N-1)/N E, reduce-scatter and all-gather (N-1)/N E, message E, times the calls.
  [[nodiscard]] double sent_elements() const;
  [[nodiscard]] double sent_bytes() const { return sent_elements() * element_bytes; }
  // The same over all ranks of the group: whole for any remainder, so that counts can be compared
  // exactly. Messages are this rank's alone: the ends of a pipeline send less than its middle.
  [[nodiscard]] std::int64_t group_elements() const;
};

// Where the numbers come from, per step, with A = B T C / c elements of activations of a
// microbatch, m microbatches, l layers on the rank, P its parameters, N = dp x cp:
//   tp   4 l m all-reduces of A (2 forward, 2 backward; 2 more forward ones under full
//        recomputation), 1 m for the token table, 1 m for the head's input gradient, 3 m of B T / c
//        scalars for the loss. Under sequence parallelism a reduce-scatter and an all-gather of A
//        stand in the place of each all-reduce of A (a layer's reduce-scatters in k pieces each
//        when products come in k row chunks), 2 l m more all-gathers bring back the norms'
//        outputs in backward, and the norms' gradients are summed once per step. With fewer
//        key/value heads than tensor ranks, the gradients of their copies are, too
//   cp   ring attention, per layer and microbatch, u = (T/c) B K d / t: 2 u (c-1) forward,
//        2 u (c-1) + 2 u c backward; Ulysses: c - 1 messages each of 1/c of a rank's queries, keys
//        and values, of its outputs, and of the gradients of both. Forward's come again under full
//        recomputation
//   pp   A (A/t under sequence parallelism) per microbatch, direction and boundary between two
//        ranks; and the tied table's gradient, an all-reduce of V C / t between first and last
//        stage
//   dp   ZeRO 0: one all-reduce of P; 1: one reduce-scatter and one all-gather; 2: m
//        reduce-scatters and one all-gather; 3: 2 m all-gathers and m reduce-scatters; with weights
//        kept from forward to backward, m all-gathers or, of layers, one each time that a stage's
//        first microbatch goes between the two (kept_spans). Where ZeRO cuts over S ranks in each
//        of N/S groups, these are over S, and one all-reduce of P/S over the groups is added
// Sources: Shoeybi et al. 2019; Korthikanti et al. 2023; Liu et al. 2023 (ring attention);
// Rajbhandari et al. 2020.
[[nodiscard]] std::vector<Traffic> traffic_of(const RunShape& run, const PipeSchedule& schedule,
                                              int pp_rank, int tp_rank);

}  // namespace sinew::sched
