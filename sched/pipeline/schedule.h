// PipeSchedule: a pipeline schedule as data: per rank the list of actions it takes in one training step.
//
// Never does: run (model/ does), time (simulate.h through TaskGraph).
// Terms: p ranks along the pipeline, v model chunks per rank, p*v virtual stages; virtual stage s lives on rank
// s % p in the looping placement, m microbatches. F forward, B backward (input gradient; with W absent it
// includes the weight gradient), W weight gradient.
//
// Invariants (proved by pipeline/verify.h): every (stage, microbatch) has one F and one B (and one W where the
// schedule splits them); B after F on the same stage; sends and receives match per ordered pair of ranks in
// FIFO order; no deadlock with receives posted in program order and buffered sends; weight gradients of a stage
// accumulate in increasing microbatch order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::sched {

enum class PipeVerb : std::uint8_t {
  kForward,
  kBackward,     // input and weight gradients, or input only when the schedule has kWeight actions
  kWeight,       // weight gradients only
  kSendForward,  // activation of (stage, microbatch) to the rank of stage + 1
  kRecvForward,  // input activation of (stage, microbatch) from the rank of stage - 1
  kSendBackward, // gradient of the input of (stage, microbatch) to the rank of stage - 1
  kRecvBackward, // gradient of the output of (stage, microbatch) from the rank of stage + 1
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
  std::vector<std::vector<PipeAction>> actions;  // [ranks]
  [[nodiscard]] int stages() const { return ranks * chunks; }
  friend bool operator==(const PipeSchedule&, const PipeSchedule&) = default;
};

struct PipeParams {
  int ranks = 1;
  int chunks = 1;
  int microbatches = 1;
};

// Durations in any unit; F, B and W of one microbatch on one virtual stage.
struct PipeTimes {
  double forward = 1;
  double backward = 2;  // whole backward where the schedule does not split it
  double weight = 0;
  double transfer = 0;  // one boundary, one direction
};

struct PipeAlgorithm {
  std::string_view name;     // "gpipe", "1f1b"
  std::string_view formula;  // bubble, for people
  std::string_view source;
  // Compute actions only; the send/receive pass (passes/) inserts the communication.
  PipeSchedule (*generate)(const PipeParams& params);
  std::string (*refuse)(const PipeParams& params);
  // Closed forms: bubble as a fraction of the ideal time m(F+B); peak live microbatches (stage inputs) of a rank.
  double (*bubble)(const PipeParams& params, const PipeTimes& times);
  int (*peak_live)(const PipeParams& params, int rank);
};

[[nodiscard]] std::span<const PipeAlgorithm> pipe_algorithms();
[[nodiscard]] const PipeAlgorithm& find_pipe_algorithm(std::string_view name);  // throws UsageError
// Generates and inserts sends and receives; throws UsageError when refused.
[[nodiscard]] PipeSchedule generate(const PipeAlgorithm& algorithm, const PipeParams& params);

// Canonical text form, parse(print(s)) == s; parse throws UsageError with the line and what is legal.
[[nodiscard]] std::string print(const PipeSchedule& schedule);
[[nodiscard]] PipeSchedule parse_pipe_schedule(std::string_view text);

}  // namespace sinew::sched
