// Engine: what a Communicator is made of. Starts calls, drives all that are in flight, waits with a
// deadline, and turns every fault into one error that poisons the communicator.
//
// Threads: one engine per rank, one thread at a time.
// Invariants
//   1. Call numbers grow by one per collective call, alike on all ranks; the Roster knows the
//   current one.
//   2. A channel runs one call at a time: blocking calls channel 0, the i-th started call channel 1
//   + i mod 3.
//   3. After a fault nothing moves any more: every later call throws the same error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/communicator.h"
#include "comm/executor.h"
#include "comm/memory.h"
#include "comm/messages.h"
#include "comm/plan.h"
#include "comm/regions.h"
#include "comm/roster.h"
#include "comm/select.h"
#include "comm/transport.h"
#include "comm/wait.h"

namespace sinew::comm {

// A communicator's shared block: the roster, then the transport's lanes. Kept alive by the
// communicators split from it, whose failures must be seen there.
struct SharedBlock {
  Mapping mapping;
  std::unique_ptr<Roster> roster;
  std::shared_ptr<SharedBlock> upper;
};

// A collective call as the caller made it.
struct Ask {
  sched::Collective op = sched::Collective::kBarrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kU8;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
};

struct Operation {
  explicit Operation(Transport& transport) : execution(transport) {}
  Execution execution;
  CallInfo call;
  Work work;
  std::uint64_t number = 0;
  bool running = false;
};

class Engine {
 public:
  struct Parts {
    Bootstrap* bootstrap = nullptr;  // during construction only
    std::shared_ptr<Memory> memory;
    std::shared_ptr<Regions> regions;
    std::shared_ptr<SharedBlock> upper;  // null: not split from anything
    std::vector<int> origins;            // [world]; empty: 0, 1, ...
  };
  Engine(Parts parts, Options options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return world_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] std::string_view transport_name() const { return memory_->name(); }
  [[nodiscard]] Counters& counters() { return counters_; }
  [[nodiscard]] Machine machine() const { return machine_; }

  void run(const Ask& ask, std::string_view algorithm);
  [[nodiscard]] Operation& start(const Ask& ask, std::string_view algorithm);
  void run_schedule(const sched::Schedule& schedule, const Ask& ask);
  void wait(Operation& operation);  // of a started one
  [[nodiscard]] bool test(Operation& operation);

  void send(const void* data, std::int64_t count, DType dtype, int peer, int tag);
  void recv(void* data, std::int64_t count, DType dtype, int peer, int tag);
  [[nodiscard]] Transfer& start_send(const void* data, std::int64_t count, DType dtype, int peer,
                                     int tag);
  [[nodiscard]] Transfer& start_recv(void* data, std::int64_t count, DType dtype, int peer,
                                     int tag);
  void wait(Transfer& transfer);
  [[nodiscard]] bool test(Transfer& transfer);

  // Collective over all ranks.
  [[nodiscard]] std::unique_ptr<Engine> split(int color, int key);
  [[nodiscard]] std::byte* allocate(std::size_t size_bytes);
  [[nodiscard]] const std::shared_ptr<Regions>& regions() const { return regions_; }

  // `mine` of each member (ranks of this engine, own included), in the members' order; over the
  // setup lanes.
  void gather_from(const std::vector<int>& members, const CallInfo& call,
                   std::span<const std::byte> mine, std::byte* all);

  [[nodiscard]] bool failed() const { return failed_; }
  // Tells the peers that this rank leaves by an exception.
  void abandon();

 private:
  // What a wait waits for: one of the two.
  struct Pending {
    const Operation* operation = nullptr;
    const Transfer* transfer = nullptr;
    [[nodiscard]] bool done() const {
      return operation != nullptr ? !operation->running : transfer->complete;
    }
    [[nodiscard]] const CallInfo& call() const {
      return operation != nullptr ? operation->call : transfer->call;
    }
    [[nodiscard]] int waits_for() const {
      return operation != nullptr ? operation->execution.waits_for() : transfer->peer;
    }
  };

  void check(const Ask& ask) const;
  [[nodiscard]] CallInfo resolve(const Ask& ask, std::string_view algorithm, Form form) const;
  void begin_setup_call(const CallInfo& call);
  [[nodiscard]] Operation& begin(const CallInfo& call, const Plan& plan, const Ask& ask);
  void complete(Operation& operation);
  void count_call(const Operation& operation);
  [[nodiscard]] Transfer make_transfer(std::int64_t count, DType dtype, int peer, int tag) const;
  [[nodiscard]] Transfer& start_transfer(const Transfer& transfer);

  // Moves everything in flight. kFailed after a fault, which raise() then puts into words.
  [[nodiscard]] Progress progress();
  void wait(const Pending& pending);

  // Slow side of a wait: everything that can be wrong. Throws.
  void look_for_trouble(const Pending& pending);
  void look_for_mismatch(const Operation& operation);
  void raise_if_poisoned();
  [[noreturn]] void raise(Cause cause, int peer, const std::string& what);
  [[noreturn]] void raise_fault();
  [[noreturn]] void raise_mismatch(const Pending& pending, int peer, const std::string& theirs);
  [[noreturn]] void raise_timeout(const Pending& pending);
  [[nodiscard]] std::string words(const Pending& pending) const;

  Options options_;
  int rank_ = 0;
  int world_ = 1;
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<Regions> regions_;
  std::shared_ptr<SharedBlock> block_;
  std::vector<int> origins_;
  Machine machine_;
  WaitPolicy policy_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Messages> messages_;
  std::unique_ptr<PlanCache> plans_;
  std::vector<std::unique_ptr<Operation>> operations_;  // [kChannels]
  int running_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t started_ = 0;
  bool failed_ = false;
  Counters counters_{};
};

}  // namespace sinew::comm
