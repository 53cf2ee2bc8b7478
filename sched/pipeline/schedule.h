// PipeSchedule: a pipeline schedule as data: per rank the list of actions it takes in one training
// step.
//
// Never does: run (model/ does), time (simulate.h, through TaskGraph), prove (verify.h).
// Threads: plain values; share const objects freely.
//
// Terms: p ranks along the pipeline, v model chunks per rank, p*v virtual stages, m microbatches.
// `placement` says which rank holds which stage: s % p in the looping placement; forth and back (0
// 1 2 2 1 0) in the V placement. F forward; B backward (input gradient; with W absent it includes
// the weight gradient); W weight gradient.
//
// Invariants (proved by verify.h)
//   1. Every (stage, microbatch) has one F and one B, and one W where the schedule splits the
//      backward; all on the stage's rank.
//   2. Data: F needs the F of the stage before; B its own F and the B of the stage after; W its own
//      B. What lives on another rank is received before use, once, and sent after it was computed,
//      once; neighbouring stages on one rank hand over without a message.
//   3. Sends and receives match per ordered pair of ranks and direction (forward, backward), in
//      FIFO order: the two directions never share a stream, so two ranks may be both neighbours of
//      each other.
//   4. No deadlock when a receive blocks in program order and a send blocks only while its stream
//      holds c messages that are not received yet; verify reports the least c.
//   5. Weight gradients of a stage accumulate in increasing microbatch order, so all schedules give
//      equal bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::sched {

enum class PipeVerb : std::uint8_t {
  kForward,
  kBackward,      // input and weight gradients, or input only when the schedule has kWeight actions
  kWeight,        // weight gradients only
  kSendForward,   // activation of (stage, microbatch) to the rank of stage + 1
  kRecvForward,   // input activation of (stage, microbatch) from the rank of stage - 1
  kSendBackward,  // gradient of the input of (stage, microbatch) to the rank of stage - 1
  kRecvBackward,  // gradient of the output of (stage, microbatch) from the rank of stage + 1
};

struct PipeAction {
  PipeVerb verb;
  std::uint16_t stage;  // virtual stage
  std::uint32_t microbatch;
  friend constexpr bool operator==(const PipeAction&, const PipeAction&) = default;
};
static_assert(sizeof(PipeAction) == 8);

struct PipeSchedule {
  std::string name;
  int ranks = 1;         // p
  int chunks = 1;        // v
  int microbatches = 1;  // m
  std::vector<std::uint16_t>
      placement;  // [stages], the rank of each; every rank holds `chunks` stages
  std::vector<std::vector<PipeAction>> actions;  // [ranks]
  [[nodiscard]] int stages() const { return ranks * chunks; }
  [[nodiscard]] int rank_of(int stage) const { return placement[static_cast<std::size_t>(stage)]; }
  friend bool operator==(const PipeSchedule&, const PipeSchedule&) = default;
};

// Whether the backward is split: some action is kWeight.
[[nodiscard]] bool splits_backward(const PipeSchedule& schedule);
// The virtual stages of a rank, by increasing stage: chunk 0, 1, ... of the rank.
[[nodiscard]] std::vector<int> stages_of(const PipeSchedule& schedule, int rank);

[[nodiscard]] std::vector<std::uint16_t> looping_placement(int ranks, int chunks);
// Forth and back: chunk c of a rank is stage c*p + rank for even c, (c+1)*p - 1 - rank for odd c.
[[nodiscard]] std::vector<std::uint16_t> v_placement(int ranks, int chunks);

struct PipeParams {
  int ranks = 1;         // p >= 1
  int chunks = 1;        // v >= 1
  int microbatches = 1;  // m >= 1
};

// Durations in any unit, of one microbatch on one virtual stage.
struct PipeTimes {
  double forward = 1;
  double backward = 1;  // input gradient
  double weight = 1;    // weight gradient; a backward that is not split takes backward + weight
  double transfer = 0;  // one boundary, one direction; beside computation
};

struct PipeAlgorithm {
  std::string_view name;     // "gpipe", "1f1b"
  std::string_view formula;  // bubble, for people
  std::string_view source;
  int default_chunks;  // v when nobody says
  // Compute actions only; the send/receive pass (passes/communication.h) inserts the messages.
  PipeSchedule (*generate)(const PipeParams& params);
  // Empty when the parameters are legal, else the rule and the legal values in one line.
  std::string (*refuse)(const PipeParams& params);
  // Bubble over ideal time m v (F+B+W), at no transfer time: the idle time of the busiest rank
  // between its first and its last action. Exact where `exact` says so, an upper bound elsewhere.
  double (*bubble)(const PipeParams& params, const PipeTimes& times);
  bool (*exact)(const PipeParams& params, const PipeTimes& times);
  // Most (stage, microbatch) inputs a rank holds at once, from the F that uses it to the B (W where
  // split).
  int (*peak_live)(const PipeParams& params, int rank);
};

[[nodiscard]] std::span<const PipeAlgorithm> pipe_algorithms();
// Throws UsageError naming the legal names.
[[nodiscard]] const PipeAlgorithm& find_pipe_algorithm(std::string_view name);
// Generates and inserts sends and receives; throws UsageError when refused.
[[nodiscard]] PipeSchedule generate(const PipeAlgorithm& algorithm, const PipeParams& params);

[[nodiscard]] std::string_view name_of(PipeVerb verb);
// One action as in the text form: "F2.5" is the forward of stage 2, microbatch 5.
[[nodiscard]] std::string print(const PipeAction& action);
// Canonical text form (described in text.cc), parse(print(s)) == s. The name must be one word.
// parse throws UsageError with the line and what is legal, for any text; what it returns has the
// shape that the fields claim, and may still be wrong or lack messages: insert_messages and verify
// come next.
[[nodiscard]] std::string print(const PipeSchedule& schedule);
[[nodiscard]] PipeSchedule parse_pipe_schedule(std::string_view text);

}  // namespace sinew::sched
