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
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/ask.h"
#include "comm/bootstrap.h"
#include "comm/communicator.h"
#include "comm/executor.h"
#include "comm/memory.h"
#include "comm/messages.h"
#include "comm/network.h"
#include "comm/placement.h"
#include "comm/plan.h"
#include "comm/regions.h"
#include "comm/roster.h"
#include "comm/select.h"
#include "comm/small.h"
#include "comm/stage.h"
#include "comm/transport.h"
#include "comm/transport/choice.h"
#include "comm/transport/pull.h"
#include "comm/wait.h"
#include "kernels/streaming.h"

namespace sinew::comm {

class Group;

// A communicator's shared block: the roster, then the transport's lanes. Kept alive by the
// communicators split from it, whose failures must be seen there.
struct SharedBlock {
  Mapping mapping;
  std::unique_ptr<Roster> roster;
  std::unique_ptr<Network> network;  // null: all ranks map the block
  std::shared_ptr<SharedBlock> upper;
};

// Adds the time of its scope to a counter, as often as `weight` says; 0: looks at no clock.
class Timed {
 public:
  // A clock read costs as much as a quarter of a call with few bytes: only some of those are timed,
  // each for all since.
  static constexpr int kOneOf = 16;
  static int weight_of_few_bytes(const Counter& counter) {
    return counter.calls % kOneOf == kOneOf - 1 ? kOneOf : 0;
  }

  explicit Timed(Counter& counter, int weight = 1)
      : counter_(counter), weight_(weight), start_ns_(weight == 0 ? 0 : now_ns()) {}
  ~Timed() {
    if (weight_ == 0) return;
    counter_.seconds += weight_ * 1e-9 * static_cast<double>(now_ns() - start_ns_);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Counter& counter_;
  int weight_;
  std::int64_t start_ns_;
};

struct Operation {
  explicit Operation(Transport& transport) : execution(transport) {}
  Execution execution;
  CallInfo call;
  Work work;
  std::uint64_t number = 0;
  std::vector<std::byte> products;  // the input times the caller's factor
  std::int64_t own_count = 0;       // elements of this rank's output of a reduction
  std::int64_t full_bytes = 0;      // of the whole vector
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
    TransportChoice choice;
  };
  Engine(Parts parts, Options options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return world_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] std::string_view transport_name() const { return transport_->traits().name; }
  // Of messages to one peer.
  [[nodiscard]] std::string_view transport_to(int peer) const {
    return maps(peer) ? memory_->name() : choice_.wire->name;
  }
  [[nodiscard]] std::string describe_network() const;
  [[nodiscard]] std::int64_t network_block_bytes() const;
  [[nodiscard]] const std::string& copies_denied() const { return copies_denied_; }
  [[nodiscard]] Counters& counters() { return counters_; }
  // With those of the network as they are now.
  [[nodiscard]] const Counters& all_counters();
  void reset_counters();
  [[nodiscard]] Machine machine() const { return machine_; }
  [[nodiscard]] const std::vector<int>& own_cores() const { return own_cores_; }
  [[nodiscard]] std::string placement() const {
    return placement_ == nullptr ? std::string() : placement_->text();
  }

  // The engines of this thread.
  [[nodiscard]] static std::span<Engine* const> of_thread();
  // The group that notes this communicator's calls; null: none is open.
  [[nodiscard]] Group* group() const { return group_; }
  void set_group(Group* group) { group_ = group; }
  // Throw what the call would.
  void check_call(const Ask& ask, std::string_view algorithm);
  void check_message(const void* data, std::int64_t count, DType dtype, int peer, int tag) const;
  // Started calls that can be under way at once; one more waits for the oldest.
  static constexpr std::size_t kStartedPlaces = kChannels - 1;

  void run(const Ask& ask, std::string_view algorithm);
  [[nodiscard]] Operation& start(const Ask& ask, std::string_view algorithm);
  void run_schedule(const sched::Schedule& schedule, const Ask& ask);
  void wait(Operation& operation);
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
  // Tells the peers that this rank leaves in the middle, and how.
  void abandon(const char* how);
  // This rank leaves. A call that is under way is abandoned.
  void close();
  [[nodiscard]] bool closed() const { return closed_; }
  // Whether a call was still under way then, though nothing had failed.
  [[nodiscard]] bool lost_calls() const { return lost_calls_; }

 private:
  // A schedule that is in no table, proved.
  struct OwnPlan {
    sched::Schedule schedule;
    Plan plan;
    std::uint16_t tag = 0;  // a hash of the schedule's text
  };
  // A small call under way: it waits for a peer to open its box, or for the own box to be free.
  struct SmallCall {
    CallInfo call;
    std::uint64_t number = 0;
    SmallBoxes* boxes = nullptr;
    int peer = -1;
    bool opened = false;
    bool agreed = false;  // boxes of this very call have shown that the ranks' calls match
  };
  // Of the ranks during one staged call.
  struct Meetings {
    CallInfo call;
    std::uint64_t number = 0;
    std::uint64_t flag = 0;
    std::uint32_t held = 0;
  };
  // What a wait waits for: one of the three.
  struct Pending {
    const Operation* operation = nullptr;
    const Transfer* transfer = nullptr;
    const SmallCall* small = nullptr;
    [[nodiscard]] bool done() const;
    [[nodiscard]] const CallInfo& call() const;
    [[nodiscard]] std::uint64_t number() const;  // 0: point to point
    [[nodiscard]] int waits_for() const;
  };

  [[nodiscard]] bool maps(int peer) const {
    return choice_.hosts[static_cast<std::size_t>(peer)] ==
           choice_.hosts[static_cast<std::size_t>(rank_)];
  }
  [[nodiscard]] bool alone_on_host() const;
  void find_peers_on_my_core(const Neighbours& here);
  // Whether large calls may pass through a stage: all ranks are processes of this host, and nothing
  // was asked of how their messages travel.
  [[nodiscard]] bool wants_stage() const;
  // Gets the block that the ranks of this host share.
  void share_block(const Parts& parts);
  void make_transports(const Parts& parts, std::byte* lanes);
  // Where a network is: what this rank hears and tells there. See network.h.
  [[nodiscard]] Progress progress_over_network();
  void exchange_notices();
  [[nodiscard]] std::shared_ptr<NetworkFamily> family() const;  // null: no network
  void tell_poison();
  // After a foreign message: lets the ranks' rows cross, so that the error can name both calls.
  void compare_rows();
  [[nodiscard]] bool can_name_foreign_call() const;
  [[nodiscard]] static std::uint64_t number_like(const Operation& operation, std::uint64_t flag);
  void farewell();
  // Before a caller that fails frees the memory that it lent for messages.
  void stop_landing();
  void find_direct();
  [[nodiscard]] const OwnPlan& own_plan(const sched::Schedule& schedule);
  [[nodiscard]] Plan prove_and_compile(const sched::Schedule& schedule) const;
  void check(const Ask& ask) const;
  void check_size(const Ask& ask) const;
  void check_buffers(const Ask& ask) const;
  void check_parts(const Ask& ask) const;
  [[nodiscard]] const Plan& plan_of(const CallInfo& call, const Ask& ask);
  [[nodiscard]] CallInfo resolve(const Ask& ask, std::string_view algorithm, Form form);
  [[nodiscard]] std::uint16_t algorithm_of(const Ask& ask, std::string_view name);
  [[nodiscard]] bool is_small(const Ask& ask, std::uint16_t algorithm) const;
  void run_plain(const CallInfo& call, const Ask& ask);
  void run_boxed(const CallInfo& call, const Ask& ask);
  // The input times the factor, in the output where that is as long, else in `room`.
  [[nodiscard]] const void* premultiply(const Ask& ask, std::vector<std::byte>& room) const;
  void run_small(const CallInfo& call, const Ask& ask);
  [[nodiscard]] bool may_be_symmetric(const Ask& ask, std::uint16_t algorithm) const;
  void run_symmetric(const CallInfo& call, const Ask& ask);
  [[nodiscard]] std::int64_t move_symmetric(const Ask& ask);
  void reduce_to_all(const Ask& ask, std::int64_t offset, std::int64_t size,
                     kernels::Stores stores);
  // From where sources_ stand, as many elements of each.
  void reduce_sources(const Ask& ask, void* target, std::int64_t count);
  // The same into each target, past the cache. False: not done, as the targets' lines differ or the
  // sums are to be divided.
  [[nodiscard]] bool reduce_past_cache(const Ask& ask, std::span<void* const> targets,
                                       std::int64_t count);
  void spread(const std::byte* data, std::int64_t offset, std::int64_t size,
              kernels::Stores stores);
  [[nodiscard]] const std::byte* mapped(int peer, Regions::Place place, std::int64_t size);
  [[nodiscard]] bool may_be_staged(const Ask& ask, std::uint16_t algorithm) const;
  // flag: as of begin().
  void run_staged(const CallInfo& call, const Ask& ask, std::uint64_t flag = 0);
  void meet(Meetings& meetings);
  [[nodiscard]] SmallCall arrive(Meetings& meetings);
  [[nodiscard]] kernels::Stores stores_for_reader(int reader) const;
  void put(std::byte* target, const std::byte* source, std::int64_t size, int reader) const;
  void sum_for_all(const Ask& ask, std::byte* output, std::int64_t count, kernels::Stores stores);
  std::int64_t stage_sums(Meetings& meetings, const Ask& ask, kernels::Stores stores);
  std::int64_t stage_whole(Meetings& meetings, const Ask& ask, kernels::Stores stores);
  std::int64_t stage_parts(Meetings& meetings, const Ask& ask);
  std::int64_t stage_from_root(Meetings& meetings, const Ask& ask, kernels::Stores stores);
  [[nodiscard]] bool may_be_parcelled(const Ask& ask, std::uint16_t algorithm) const;
  void run_parcelled(const CallInfo& call, const Ask& ask);
  [[nodiscard]] std::int64_t pack_parcel(const Ask& ask, std::byte* parcel) const;
  [[nodiscard]] bool hear_parcels(SmallCall& small);
  void take_parcels(const SmallCall& small, const Ask& ask);
  void combine_boxes(const Ask& ask);
  void open_box(SmallCall& small, std::uint64_t flag, const void* payload, std::int64_t size);
  // What opening the box of a call that is not yet on the roster begins and ends with.
  void await_own_box(const SmallCall& small);
  void tell_opened(SmallCall& small);
  void ring_peers(SmallCall& small);
  void hear_all(SmallCall& small);
  void hear_root(SmallCall& small, int root);
  void hear_senders(SmallCall& small);
  [[nodiscard]] int eager_polls(int peer, int end) const;
  void await_box(SmallCall& small, int peer, int polls);
  // Numbers the call and returns the flag of its messages.
  std::uint64_t sign(const CallInfo& call) {
    const std::uint64_t packed = call.packed();
    if (packed == signed_.packed && call.count == signed_.count) {
      history_ = signed_.next_history;
    } else {
      signed_ = {packed, call.count, signature_of(packed, call.count), 0};
      history_ = history_with(history_, signed_.signature);
    }
    signed_.next_history = history_with(history_, signed_.signature);
    return flag_of(++calls_, history_);
  }
  // Puts the call signed last on the roster.
  void show() { block_->roster->begin(calls_, signed_.packed, signed_.count, signed_.signature); }
  // Numbers the call, puts it on the roster and returns the flag of its messages.
  std::uint64_t announce(const CallInfo& call) {
    const std::uint64_t flag = sign(call);
    show();
    return flag;
  }
  // flag: of a call that was announced already; 0: it is announced now.
  [[nodiscard]] Operation& begin(const CallInfo& call, const Plan& plan, const Ask& ask,
                                 std::uint64_t flag = 0);
  void complete(Operation& operation);
  void count_call(sched::Collective op, std::int64_t count, std::int64_t payload_bytes,
                  std::int64_t sent_bytes);
  [[nodiscard]] MessageAsk message_ask(std::int64_t count, DType dtype, int peer, int tag) const;
  [[nodiscard]] Transfer& start_transfer(const MessageAsk& ask);
  [[nodiscard]] Progress progress_of(Transfer& started);

  // Moves everything in flight. kFailed after a fault, which raise() then puts into words.
  [[nodiscard]] Progress progress();
  [[nodiscard]] Progress advance_all();
  void help_others();
  void wait(const Pending& pending);
  [[nodiscard]] bool test(const Pending& pending);

  // Slow side of a wait: everything that can be wrong. Throws.
  void look_for_trouble(const Pending& pending);
  void look_for_mismatch(const Pending& pending);
  void raise_if_poisoned();
  [[noreturn]] void raise(Cause cause, int peer, const std::string& what);
  [[noreturn]] void raise_fault();
  [[noreturn]] void raise_unreadable(const Fault& fault);
  [[noreturn]] void raise_mismatch(const Pending& pending, int peer, const std::string& theirs);
  static constexpr const char* kOtherCount =
      "the same, but with another count for what the two exchange";
  [[noreturn]] void raise_timeout(const Pending& pending);
  [[nodiscard]] std::string words(const Pending& pending) const;

  Options options_;
  int rank_ = 0;
  int world_ = 1;
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<Regions> regions_;
  std::shared_ptr<SharedBlock> block_;
  std::vector<int> origins_;
  TransportChoice choice_;
  Machine machine_;
  std::vector<int> own_cores_;
  std::vector<bool> on_my_core_;  // [world], of peers that stay on the core that this rank stays on
  std::shared_ptr<Placement> placement_;  // null: ranks are threads of one process
  WaitPolicy policy_;
  std::unique_ptr<Pull> pull_;         // null: threads, or told not to
  std::unique_ptr<Transport> mapped_;  // null: no peer on this host
  std::unique_ptr<Transport> routed_;  // null: all peers use one transport
  Transport* transport_ = nullptr;
  std::unique_ptr<Messages> messages_;
  std::unique_ptr<PlanCache> plans_;
  std::vector<std::unique_ptr<OwnPlan>> own_plans_;  // of schedules in no table
  std::unique_ptr<SmallBoxes> boxes_;
  std::unique_ptr<Stage> stage_;  // null: no call is staged
  std::unique_ptr<Selector> selector_;
  struct Named {
    std::string name;
    int root = -1;
    std::uint16_t index = 0;
  };
  Named named_[sched::kCollectiveCount];              // the last forced algorithm of each operation
  std::uint16_t direct_[sched::kCollectiveCount];     // what small calls do
  std::uint16_t symmetric_[sched::kCollectiveCount];  // what symmetric and staged calls do
  bool auto_by_default_ = true;
  std::vector<const void*> sources_;  // [world]
  std::vector<std::byte*> targets_;   // [world], of a call on symmetric memory
  std::vector<std::byte> tile_;
  std::vector<std::unique_ptr<Operation>> operations_;  // [kChannels]
  int running_ = 0;
  std::uint32_t polls_ = 0;
  std::uint64_t heard_ticks_ = 0;
  std::uint64_t tested_ticks_ = 0;
  std::uint64_t calls_ = 0;
  std::uint32_t history_ = 0;
  // The call signed last, and the history if the next one is like it: computed after a call's flag,
  // for which the peers wait.
  struct {
    std::uint64_t packed = 0;
    std::int64_t count = -1;
    std::uint32_t signature = 0;
    std::uint32_t next_history = 0;
  } signed_;
  std::uint64_t started_ = 0;
  bool failed_ = false;
  bool closed_ = false;
  bool lost_calls_ = false;
  Group* group_ = nullptr;
  std::string copies_denied_;
  bool reads_peers_ = false;  // their own buffers, not only shared blocks
  Counters counters_{};
};

}  // namespace sinew::comm
