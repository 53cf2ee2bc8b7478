// Communicator: the public face of comm. A group of ranks that call the same collectives in the
// same order.
//
// Never does: choose what a collective means (sched does) or start processes (mpirun does).
// Threads: one communicator, one thread at a time; different communicators may be used by different
// threads.
//
// Every call
//   - takes counts in elements, 64 bit, 0 included (buffers may then be null); natural alignment is
//   enough;
//   - works in place when output is the place that in-place means for the operation: all_reduce,
//   broadcast,
//     reduce: output == input; reduce_scatter: output == input + rank*count; all_gather: input ==
//     output + rank*count; gather and scatter: as these two, at the root; all_to_all: output ==
//     input. Any other overlap is refused;
//   - is collective: all ranks call it with the same operation, count, dtype, reduction, root and
//   algorithm in
//     the same order. A mismatch is found at the first message and thrown on every rank, naming who
//     called what;
//   - throws comm::Error within options.timeout_s when a peer is late, dead, or failed; the
//   communicator is
//     then poisoned and every later call throws at once;
//   - gives the same bits on all ranks and in every run with the same world and algorithm. What
//   arithmetic does at its edges, in every type: README.md, Numbers;
//   - is only noted while a group is open (group.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/ask.h"
#include "comm/error.h"
#include "sched/base/dtype.h"
#include "sched/collective/contract.h"
#include "sched/schedule.h"

namespace sinew::comm {

class Bootstrap;
class Communicator;
class Engine;
class Regions;
class Group;
struct Operation;
struct Transfer;
class DeviceDoor;
class Transport;

// How large messages between the processes of one host travel when their buffers are ordinary
// memory. kAuto: by what is faster; kSlots: through shared memory; kPull: read by the receiver out
// of the sender's memory wherever the kernel allows it. Results do not differ.
enum class Copies : std::uint8_t { kAuto, kSlots, kPull };

struct Options {
  // auto: mapped memory between ranks that can open each other's, else verbs, else UCX; the
  // variable SINEW_TRANSPORT stands in for it. shm, local (threads of one process), ucx,
  // verbs[:DEVICE[:GID]]; shm+ucx, shm+verbs: as auto, with that wire.
  std::string transport = "auto";
  std::string algorithm = "auto";  // default for calls that name none
  double timeout_s = 60;           // deadline of every wait (setup included)
  int spin_us = -1;                // how long a wait spins before it yields; -1: from usable cores
  // Two ways to run the same schedule faster; false takes the plain way, for comparison.
  bool small_calls = true;  // tiny messages ride in the flag line instead of taking the executor
  bool fuse = true;  // consecutive reductions into one place read all their sources in one pass
  Copies copies = Copies::kAuto;
  // Puts another transport around this rank's; for tests. Small calls do not pass through it.
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>, int rank)> wrap_transport =
      nullptr;
};

// What to do differently in one call.
struct Call {
  std::string_view algorithm =
      {};  // empty: the communicator's default. A forced name is never replaced
  // Of a sum: one element of the call's type, read during the call; this rank's input counts times
  // it, each product rounded to the type before anything is summed. Ranks may differ in it, and one
  // without counts once.
  const void* factor = nullptr;
};

// A started operation. Movable; must be waited for, once, and before its communicator is gone: then
// test and wait throw UsageError, and it is over. Its destructor aborts the program if it was
// neither waited for nor failed, except while an exception unwinds, which makes the operation fail
// on all ranks. Of a call on device memory, wait() lets the device wait, not the host, and nothing
// is lost without it.
class Request {
 public:
  Request() = default;
  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  ~Request();
  // Progresses; true once done. Throws comm::Error on failure: of a peer that is dead, has left or
  // called something else, but not of one that is late, since only the caller knows how long it
  // means to go on asking.
  [[nodiscard]] bool test();
  void wait();
  [[nodiscard]] bool pending() const { return engine_ != nullptr || door_ != nullptr; }

 private:
  friend class Communicator;
  void refuse_orphan();
  DeviceDoor* door_ = nullptr;  // of a call on device memory; number_ is then its ticket
  std::weak_ptr<DeviceDoor> door_life_;
  // Null: nothing to wait for. Shared, to be there when the communicator is not.
  std::shared_ptr<Engine> engine_;
  Operation* operation_ = nullptr;  // one of the two
  Transfer* transfer_ = nullptr;
  std::uint64_t number_ = 0;  // of the call: the operation may serve a later one once it is done
};

// Counted traffic of one communicator since creation or reset: what the tests compare with closed
// forms.
struct Counter {
  std::int64_t calls = 0;
  std::int64_t through_stage = 0;  // of those, in tiles that each rank put once for all
  std::int64_t elements = 0;       // sum of the counts passed in
  std::int64_t payload_bytes =
      0;                        // sum over calls of the full vector's bytes (m of the cost tables)
  std::int64_t sent_bytes = 0;  // bytes of messages this rank sent
  double seconds = 0;           // time spent inside calls and waits
};

// Bytes of messages to and from other hosts, and how they went through this process.
struct NetworkCounters {
  std::int64_t sent_bytes = 0;
  std::int64_t staged_bytes =
      0;  // of those, copied before they were sent; the others left from where they lay
  std::int64_t received_bytes = 0;
  std::int64_t landed_bytes = 0;  // of those, arrived where they were wanted; the others in slots
};

struct Counters {
  Counter collective[sched::kCollectiveCount];
  Counter send;
  Counter recv;
  NetworkCounters network;
};

// Memory that every rank of the communicator maps, so that peers load and store it directly. May
// outlive the communicator.
struct SymmetricDeleter {
  std::shared_ptr<Regions> regions;
  void operator()(std::byte* pointer) const;
};
using Symmetric = std::unique_ptr<std::byte[], SymmetricDeleter>;

class Communicator {
 public:
  // All ranks of the launcher: MPI_COMM_WORLD, or those of tools/launch.sh (bootstrap.h).
  // Initialises MPI when it is not. MPI only exchanges addresses: no
  // collective or point-to-point byte of this class moves through it.
  [[nodiscard]] static std::unique_ptr<Communicator> from_mpi(const Options& options);

  // Over any other means of exchanging small blobs (bootstrap.h), which is needed during this call
  // only.
  [[nodiscard]] static std::unique_ptr<Communicator> from_bootstrap(Bootstrap& bootstrap,
                                                                    const Options& options);

  // Runs `body` on `world` threads of this process, each with its rank of one `local` communicator.
  // Returns when all have; rethrows the first exception. For tests and for studying algorithms
  // without mpirun.
  static void run_threads(int world, const Options& options,
                          const std::function<void(Communicator&)>& body);

  // A call that is under way then fails on all ranks.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int world() const;
  [[nodiscard]] std::string_view transport_name() const;
  // What carries messages to a peer; "self" for the own rank.
  [[nodiscard]] std::string_view transport_to(int peer) const;
  // Over what this rank reaches other hosts, in one line: device, address, queues. Empty: there are
  // none.
  [[nodiscard]] std::string network() const;
  // The longest block in which a blocking collective crosses hosts. 0: there are no other hosts.
  [[nodiscard]] std::int64_t network_block_bytes() const;

  // The cores that this rank's threads may use: those it is allowed, shared out between the ranks
  // of its machine that are allowed the same. At least one; a quota of CPU time lowers the number.
  [[nodiscard]] const std::vector<int>& own_cores() const;
  // Where this machine's ranks run, in one line; empty when they do not share cores, or are threads
  // of one process. Where it is asked for and they can share the cores out equally, each thread
  // stays on one (comm/placement.h); once its communicators are gone it may use all again.
  [[nodiscard]] std::string placement() const;

  // Why ranks of this host cannot read each other's memory, in one clause; empty when they can or
  // need not.
  [[nodiscard]] const std::string& copies_denied() const;

  // Collective. Ranks with equal color form a new communicator, ordered by (key, rank). color < 0:
  // none (null).
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key);
  // Collective. The same ranks in the same order, with calls that do not queue behind this one's.
  [[nodiscard]] std::unique_ptr<Communicator> duplicate() { return split(0, rank()); }

  // n = count elements; see sched/collective/contract.h for the shapes of input and output.
  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
                  Call call = {});
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
                      Call call = {});
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype, Call call = {});
  void broadcast(const void* input, void* output, std::int64_t count, DType dtype, int root,
                 Call call = {});
  void reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
              int root, Call call = {});
  void gather(const void* input, void* output, std::int64_t count, DType dtype, int root,
              Call call = {});
  void scatter(const void* input, void* output, std::int64_t count, DType dtype, int root,
               Call call = {});
  void all_to_all(const void* input, void* output, std::int64_t count, DType dtype, Call call = {});
  void barrier(Call call = {});

  // Parts of different sizes. counts: [world], in elements, read during the call only; part r has
  // counts[r] of them and parts lie one after the other in rank order. All ranks pass the same
  // counts, except to all_to_all_v: there each rank says what it sends to and receives from each
  // peer, every pair must agree, and input and output may not overlap. Otherwise as above, the
  // in-place forms included; the schedules are those of the operations without _v.
  using Counts = ask::Counts;
  void reduce_scatter_v(const void* input, void* output, Counts counts, DType dtype, ReduceOp op,
                        Call call = {});
  void all_gather_v(const void* input, void* output, Counts counts, DType dtype, Call call = {});
  void gather_v(const void* input, void* output, Counts counts, DType dtype, int root,
                Call call = {});
  void scatter_v(const void* input, void* output, Counts counts, DType dtype, int root,
                 Call call = {});
  void all_to_all_v(const void* input, Counts input_counts, void* output, Counts output_counts,
                    DType dtype, Call call = {});

  [[nodiscard]] Request start_all_reduce(const void* input, void* output, std::int64_t count,
                                         DType dtype, ReduceOp op, Call call = {});
  [[nodiscard]] Request start_reduce_scatter(const void* input, void* output, std::int64_t count,
                                             DType dtype, ReduceOp op, Call call = {});
  [[nodiscard]] Request start_all_gather(const void* input, void* output, std::int64_t count,
                                         DType dtype, Call call = {});
  [[nodiscard]] Request start_broadcast(const void* input, void* output, std::int64_t count,
                                        DType dtype, int root, Call call = {});
  [[nodiscard]] Request start_reduce(const void* input, void* output, std::int64_t count,
                                     DType dtype, ReduceOp op, int root, Call call = {});
  [[nodiscard]] Request start_gather(const void* input, void* output, std::int64_t count,
                                     DType dtype, int root, Call call = {});
  [[nodiscard]] Request start_scatter(const void* input, void* output, std::int64_t count,
                                      DType dtype, int root, Call call = {});
  [[nodiscard]] Request start_all_to_all(const void* input, void* output, std::int64_t count,
                                         DType dtype, Call call = {});
  [[nodiscard]] Request start_barrier(Call call = {});
  [[nodiscard]] Request start_reduce_scatter_v(const void* input, void* output, Counts counts,
                                               DType dtype, ReduceOp op, Call call = {});
  [[nodiscard]] Request start_all_gather_v(const void* input, void* output, Counts counts,
                                           DType dtype, Call call = {});
  [[nodiscard]] Request start_gather_v(const void* input, void* output, Counts counts, DType dtype,
                                       int root, Call call = {});
  [[nodiscard]] Request start_scatter_v(const void* input, void* output, Counts counts, DType dtype,
                                        int root, Call call = {});
  [[nodiscard]] Request start_all_to_all_v(const void* input, Counts input_counts, void* output,
                                           Counts output_counts, DType dtype, Call call = {});

  // Point to point: the i-th send to a peer with a tag meets the i-th recv from this rank with that
  // tag; counts and types must agree. Tags are small integers in [0, kTags).
  static constexpr int kTags = 16;
  void send(const void* data, std::int64_t count, DType dtype, int peer, int tag = 0);
  void recv(void* data, std::int64_t count, DType dtype, int peer, int tag = 0);
  [[nodiscard]] Request start_send(const void* data, std::int64_t count, DType dtype, int peer,
                                   int tag = 0);
  [[nodiscard]] Request start_recv(void* data, std::int64_t count, DType dtype, int peer,
                                   int tag = 0);

  // A collective as data, and started; what all of the above are.
  void run(Ask ask, Call call = {});
  [[nodiscard]] Request start(Ask ask, Call call = {});

  // Runs a schedule that is in no table (loaded from a file). It is proved first; throws UsageError
  // with the counterexample when it is wrong.
  void run_schedule(const sched::Schedule& schedule, const void* input, void* output,
                    std::int64_t count, DType dtype, ReduceOp op);

  // Collective: every rank allocates `size_bytes` that peers can address. Freed collectively, in
  // any order. What a machine has no memory for throws on every rank, and is the one Error that
  // leaves the communicator as it was.
  [[nodiscard]] Symmetric allocate(std::size_t size_bytes);

  // Why: the algorithm `auto` takes for these arguments, and the reason in words.
  struct Choice {
    std::string algorithm;
    std::string reason;
  };
  [[nodiscard]] Choice explain(sched::Collective op, std::int64_t count, DType dtype) const;

  // Collectives and, if the door takes them, messages on memory that the door owns go through it
  // from now on: they are queued on the device. What was started there runs beside what the device
  // is given meanwhile, and comes before what it is given after wait(). Symmetric memory stays with
  // the host. Null: nothing goes through a door.
  void attach(std::unique_ptr<DeviceDoor> door);
  // Whether messages of the door's memory go from device to device.
  [[nodiscard]] bool sends_from_device() const;
  // Waits for the device. Throws comm::Error when a call through the door failed: a peer is late
  // or dead.
  void check_device();
  // Collective: closes the door.
  void detach_device();

  [[nodiscard]] const Counters& counters() const;
  void reset_counters();

 private:
  friend class Group;
  explicit Communicator(std::shared_ptr<Engine> engine);
  // Also while a group is being run.
  [[nodiscard]] Request start_now(const Ask& ask, Call call);
  // Refuses what a group cannot hold back.
  void outside_group(const char* what) const;
  [[nodiscard]] bool is_on_device(const Ask& ask) const;
  [[nodiscard]] bool is_on_device(const void* message, std::int64_t count) const;
  // Of a call on device memory, to be finished.
  [[nodiscard]] Request start_on_device(const Ask& ask, Call call);
  [[nodiscard]] Request note_message(Counter& counter, std::int64_t count, DType dtype,
                                     std::uint64_t ticket, bool sends);
  std::shared_ptr<Engine> engine_;      // requests keep it, closed, to know what became of them
  std::shared_ptr<DeviceDoor> device_;  // or null; requests ask whether it is still there
};

}  // namespace sinew::comm
