// Schedule: a collective as data. One Program of Steps per rank says which chunk moves where;
// nothing here knows counts, element types, pointers, time or transports.
//
// Never does: generate (collective/*.cc through Builder), prove (verify.h), time (simulate.h), run
// (comm/).
// Threads: plain values; share const objects freely.
//
// Terms
//
//   chunk    meaning: one of `blocks * chunks_per_block` pieces of the collective's logical vector.
//            A block is one rank's part where the operation has parts (reduce-scatter, all-gather,
//            ...), else there is one.
//   slot     a place on one rank that holds one chunk: Input[c] (the caller's input, read only),
//            Output[c] (the caller's output) or Scratch[s] (private; sized like the chunk
//            `scratch_chunk[s]`).
//   segment  pipelining, not meaning: every message of a schedule may be cut into k segments. All
//            segments follow the same program independently, so a proof for one is a proof for all.
//   lane     one FIFO stream of messages between an ordered pair of ranks. The i-th Send of
//            (source, target, lane) meets the i-th Recv or RecvReduce of it.
//
// Invariants (proved by verify.h; assumed by the executor)
//
//   1. Program order is issue order, not completion order: a step may begin, per segment, when the
//      same segment of each of its dependences is complete and all segments of its lane's earlier
//      messages have been issued.
//   2. A Send is complete when its source slot may be overwritten; a Recv when its target holds the
//      data.
//   3. Input[c] and Output[c] may be the same memory. Dependences treat them as one place, so every
//      schedule is valid in place and out of place. Input is never written.
//   4. A step moves `chunks` consecutive slots of one space as one message; the slots of both ends
//      have the same sizes, chunk by chunk.
//   5. A joined message is a part of the message before it, whose range of chunks had to be cut for
//      its layout: the other part is the step before it at both ends, and it waits only for steps
//      before both. Costs count the parts as one message; executors may ignore it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sched/collective/contract.h"

namespace sinew::sched {

// Limits of the representation, and of what a hostile text can make a reader allocate.
inline constexpr int kMaxWorld = 4096;
inline constexpr int kMaxLane = 127;
inline constexpr int kMaxChunks = 65535;  // a message's chunk count fits Step::chunks

enum class Verb : std::uint8_t {
  kSend,        // message <- source                      peer receives
  kRecv,        // target <- message                      peer sent
  kRecvReduce,  // target <- source (+) message           peer sent; source may be target
  kCopy,        // target <- source                       local
  kReduce,      // target <- target (+) source            local
};

enum class Space : std::uint8_t { kInput, kOutput, kScratch };

struct Slot {
  std::uint32_t bits = 0;

  static constexpr Slot of(Space space, std::uint32_t index) {
    return {(static_cast<std::uint32_t>(space) << 30) | index};
  }
  [[nodiscard]] constexpr Space space() const { return static_cast<Space>(bits >> 30); }
  [[nodiscard]] constexpr std::uint32_t index() const { return bits & 0x3fffffffU; }
  friend constexpr bool operator==(Slot, Slot) = default;
};

struct Step {
  Verb verb;
  std::uint8_t lane : 7;
  std::uint8_t joined : 1;    // 1: one message with the step before (invariant 5)
  std::uint16_t peer;         // own rank for local verbs
  Slot source;                // unused by kRecv (equal to target)
  Slot target;                // unused by kSend (equal to source)
  std::uint16_t chunks;       // consecutive slots moved, >= 1
  std::uint16_t dependences;  // how many entries of Program::dependences belong to this step
  friend constexpr bool operator==(const Step&, const Step&) = default;
};
static_assert(sizeof(Step) == 16);

struct Program {
  std::vector<Step> steps;
  // For step 0, then step 1, ...: the indices of earlier steps of this program it waits for.
  // Derived by Builder::finish (read after write, write after read, write after write), never
  // written by hand.
  std::vector<std::uint32_t> dependences;
  // Scratch slot s has the size of this chunk.
  std::vector<std::uint32_t> scratch_chunk;
  friend bool operator==(const Program&, const Program&) = default;
};

struct Schedule {
  std::string name;  // the registry row's name, or the file's
  Contract contract;
  int segments = 1;  // pipelining asked for by the parameters; 0 leaves it to the executor
  std::vector<Program> programs;  // [world]; with a keep-filter all but one are empty
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

[[nodiscard]] std::string_view name_of(Verb verb);
// For people: "recv_reduce output[2..3] <- input[2..3] + message of 1".
[[nodiscard]] std::string describe(const Step& step);

// Text form, one step a line: VERB PEER LANE[+] CHUNKS SOURCE TARGET [DEPENDENCE...], '+' for a
// joined message. `print` is
// canonical, `parse(print(s)) == s`. parse throws UsageError with the line number, what was found
// and what is legal; it accepts any text without undefined behaviour.
[[nodiscard]] std::string print(const Schedule& schedule);
[[nodiscard]] Schedule parse_schedule(std::string_view text);

}  // namespace sinew::sched
