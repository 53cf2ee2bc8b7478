// Executor: runs one rank's Plan over any Transport, on CPU memory. The one interpreter of
// schedules.
//
// A step advances in pieces: it may work on its first n bytes as soon as its dependences allow that
// much, so that several steps are under way at once and what one has written is still in cache when
// the next reads it. Messages are cut by the transport; both ends count bytes, never pieces. A
// reduction reads the incoming message where it lies.
//
// Never does: wait, throw, allocate (except when a call needs more scratch memory than any before),
// or look at clocks. Threads: one Execution, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/plan.h"
#include "comm/transport.h"
#include "kernels/streaming.h"
#include "sched/base/dtype.h"

namespace sinew::comm {

struct Work {
  const Plan* plan = nullptr;
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;  // n of contract.h
  DType dtype = DType::kU8;
  ReduceOp reduce = ReduceOp::kSum;
  // [blocks], read by start() only: elements of each block instead of `count`; null: all equal.
  // output_counts: those of the output, where they differ (all_to_all).
  const std::int64_t* counts = nullptr;
  const std::int64_t* output_counts = nullptr;
  std::uint64_t flag = 0;  // opens every message
  int channel = 0;
  bool shares_cores = false;  // with other ranks: no time is idle
};

enum class Progress : std::uint8_t {
  kIdle,  // nothing could be done: wait
  kMoved,
  kDone,
  kFailed,  // see Execution::fault
};

struct Fault {
  enum class Kind : std::uint8_t {
    kNone,
    kForeignMessage,
    kUnmapped,  // the message lies in shared memory that is not mapped here
    kNotRead,   // the message lies in memory of the peer that could not be read
  } kind = Kind::kNone;
  int peer = -1;
  std::uint64_t found_flag = 0;
};

class Execution {
 public:
  explicit Execution(Transport& transport)
      : transport_(transport), lands_(transport.traits().lands) {}

  void start(const Work& work);
  [[nodiscard]] Progress progress();
  [[nodiscard]] bool running() const { return remaining_ > 0; }
  [[nodiscard]] const Fault& fault() const { return fault_; }
  [[nodiscard]] std::int64_t sent_bytes() const { return sent_bytes_; }
  // The peer that the earliest unfinished step waits for, -1 when none does.
  [[nodiscard]] int waits_for() const;

 private:
  static constexpr int kMaxCredits = 8;

  // Per step of the running plan. Offsets are bytes from the step's start.
  struct State {
    std::byte* source;
    std::byte* target;
    std::int64_t size;
    std::int64_t issued;   // handed to the transport, or taken from it
    std::int64_t done;     // what dependent steps may rely on
    std::int64_t used;     // of the incoming message under way
    std::uint64_t oldest;  // first message since the source was exposed that is not known to be
                           // released; 0: none
    std::uint64_t newest;  // last message
    bool opened;           // at least one message went through, even if empty
    bool complete;
    std::int64_t piece_end[kMaxCredits];  // from `oldest` on, by sequence
  };

  void place_chunks();
  void place_blocks(const std::int64_t* counts, std::vector<std::int64_t>& start) const;
  [[nodiscard]] const std::vector<std::int64_t>& starts_of(sched::Space space) const;
  // Opens the messages of a step of `size` bytes.
  [[nodiscard]] std::uint64_t flag_of(std::int64_t size) const;
  void place_scratch();
  [[nodiscard]] std::byte* address(sched::Slot slot) const;
  [[nodiscard]] std::int64_t start_of(sched::Slot slot) const;
  [[nodiscard]] std::int64_t size_of_slots(sched::Slot slot, std::uint16_t chunks) const;
  // How far the dependences let the step go; -1: not at all.
  [[nodiscard]] std::int64_t limit(const PlanStep& step, std::int64_t size) const;
  [[nodiscard]] bool my_turn(std::int32_t before) const;
  bool advance(std::size_t index);
  bool advance_send(const PlanStep& step, State& state, std::int64_t until);
  bool advance_receive(const PlanStep& step, State& state, std::int64_t until);
  bool advance_many(const PlanStep& step, State& state, std::int64_t until);
  // The bytes that every operand has at hand; 0 or less: some message is missing. Fills sources_.
  std::int64_t gather_sources(const PlanStep& step, const State& state, std::int64_t until);
  void use_sources(const PlanStep& step, std::int64_t size);
  bool advance_local(const PlanStep& step, State& state, std::int64_t until);
  // What the rest of a receive wants of its lane.
  [[nodiscard]] static Wanted wanted(const PlanStep& step, const State& state, std::int64_t until);
  [[nodiscard]] Wanted wanted_after(const PlanStep& step) const;
  // Fewer bytes of a send wait until more of it are ready.
  [[nodiscard]] std::int64_t worthwhile_bytes(const PlanStep& step) const;
  void collect_released(const PlanStep& step, State& state, bool* moved);
  bool consume(const PlanStep& step, State& state, const Message& message, std::int64_t size);
  // The most of a message that is worth taking at once.
  [[nodiscard]] static std::int64_t portion(PlanVerb verb, const Message& message);
  [[nodiscard]] bool expected(int peer, const Message& message, std::uint64_t flag);
  // Of a message that is not addressable here.
  [[nodiscard]] bool pull(int peer, const Message& message, std::int64_t offset, std::byte* target,
                          std::int64_t size);
  [[nodiscard]] Source source_of(const PlanStep& step) const;
  void copy(const PlanStep& step, std::byte* target, const std::byte* source,
            std::int64_t size) const;
  // How a step writes.
  [[nodiscard]] kernels::Stores stores(const PlanStep& step) const;
  void finish(State& state);
  void fail(Fault::Kind kind, int peer, std::uint64_t found);
  [[nodiscard]] int lane_of(int lane) const { return work_.channel * kLanesPerChannel + lane; }

  Transport& transport_;
  bool lands_;  // the transport wants to know where messages are wanted
  Work work_;
  std::int64_t element_bytes_ = 1;
  bool streams_ = false;   // outputs bypass the cache
  std::size_t first_ = 0;  // steps before it are complete
  std::size_t remaining_ = 0;
  std::int64_t sent_bytes_ = 0;
  Fault fault_;
  std::vector<State> states_;
  struct Operand {
    const std::byte* base;   // of a slot
    std::int64_t used;       // of the incoming message under way
    std::int64_t available;  // of it, as last seen
  };
  std::vector<Operand> operands_;     // [plan operands]
  std::vector<const void*> sources_;  // of the piece under way
  std::vector<Message> heads_;        // [operands of the step under way]: their messages
  std::vector<std::byte> tiles_;      // pieces of messages that are only read to be reduced
  std::vector<std::int64_t>
      shifts_;  // [plan dependences]: bytes from the later slot's start to the earlier's
  std::vector<std::int64_t> chunk_start_;    // [chunks + 1], bytes in the logical vector
  std::vector<std::int64_t> output_start_;   // the same of outputs; empty: no difference
  std::vector<std::int64_t> scratch_start_;  // [scratch slots + 1], bytes
  std::int64_t input_shift_ = 0;  // where the caller's input begins in the logical vector
  std::int64_t output_shift_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace sinew::comm
