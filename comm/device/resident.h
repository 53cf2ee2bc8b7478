// Resident: collectives on device memory, each one kernel for its whole schedule.
//
// One block is one channel: it takes its share of every chunk through the rank's program, step
// after step, segment after segment, without returning to the host. The programs are those of
// sched; every row of its table can be run. Channels do not depend on one another.
//
// Same bits as the CPU executor for the same algorithm: the order of operations on an element
// follows from the schedule alone, never from channels, segments, slots or protocol. Reductions are
// not fused: in 16-bit floats every one of them rounds, as on the CPU with Options::fuse off.
//
// Never does: choose an algorithm or a protocol; move bytes between hosts.
// Threads: one Resident per rank, one thread at a time; peers run concurrently. All ranks queue the
// same calls in the same order on one stream each. Calls of one Resident must not overlap: a stream
// orders them.
// Errors: a kernel that waits longer than timeout_s for a peer ends, and so do its peers' kernels;
// check() then throws comm::Error on every rank, naming the call, who waited and for whom. Ranks
// that call different things find out at the call, or at the next one where both only send, and the
// error names both calls. The
// Resident is good for nothing afterwards; ranks of one process destroy theirs only when all
// kernels of all of them have ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/call.h"
#include "comm/device/cuda_ipc.h"
#include "comm/device/links.h"
#include "comm/device/protocol.h"
#include "kernels/device/runtime.h"
#include "sched/base/dtype.h"
#include "sched/collective/registry.h"
#include "sched/schedule.h"

namespace sinew::comm {

// Equal on all ranks.
struct ResidentOptions {
  int channels = 8;
  int slots = 4;
  std::int64_t slot_bytes = 64 * 1024;
  unsigned threads = 512;  // of a block, a multiple of 32, at most 512
  double timeout_s = 60;
};

// Throws UsageError on options that no device takes.
void require_legal(const ResidentOptions& options, int world);
// "0.2 s".
[[nodiscard]] std::string seconds_text(double seconds);

// A call: shapes as in sched/collective/contract.h, memory of this device.
struct ResidentWork {
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kF32;
  ReduceOp reduce = ReduceOp::kSum;
};

// What the kernels are told (resident.cu, small.cu).
struct ResidentCall {
  Links links;
  const sched::Step* steps;
  const std::uint32_t* scratch_chunk;
  char* scratch;
  const char* input;
  char* output;
  std::int64_t scratch_stride;  // bytes from one scratch slot to the next
  std::int64_t input_shift;     // where the caller's input begins in the logical vector, bytes
  std::int64_t output_shift;
  std::int64_t count;
  std::uint64_t timeout_ns;
  std::uint64_t flag;    // of this call (comm/call.h): its number, from 1, and all calls so far
  std::uint64_t packed;  // the call itself, with count: for a peer that finds another
  int step_count;
  int chunks_per_block;
  int segments;
  int element_bytes;  // the table of types is not in the device's memory
  DType dtype;
  ReduceOp reduce;
};

void launch_resident(const ResidentCall& call, Protocol protocol, unsigned threads,
                     device::Stream& stream);

// A kernel written for one schedule: fewer waits than the interpreter, the same moves and bits.
// Uses the low-latency protocol.
struct SmallKernel {
  std::string_view algorithm;  // the row of sched whose schedule it is
  sched::Collective op;
  void (*launch)(const ResidentCall& call, unsigned threads, device::Stream& stream);
};
[[nodiscard]] std::span<const SmallKernel> small_kernels();

class Resident {
 public:
  // Collective: memory is reserved and mapped by all. Throws UsageError on options that no device
  // takes, comm::Error on all ranks when memory cannot be had or mapped.
  Resident(Bootstrap& bootstrap, const ResidentOptions& options);
  // Collective: when it returns no peer uses this rank's memory any more. Needed before
  // destruction, unless a call failed.
  void close(Bootstrap& bootstrap);

  // Queues one call of a row. The first call of a row prepares it and waits for the stream: it must
  // not be recorded into a graph; later ones may. Throws UsageError when the row refuses the world
  // or needs more slots or larger slots than there are.
  void run(const sched::Algorithm& row, int root, Protocol protocol, const ResidentWork& work,
           device::Stream& stream);
  void run(const SmallKernel& kernel, const ResidentWork& work, device::Stream& stream);

  // What this rank sends in a call of a row that has run; chunks taken as equal.
  [[nodiscard]] std::int64_t sent_bytes(const sched::Algorithm& row, int root,
                                        const ResidentWork& work) const;

  // Waits for the stream. Throws comm::Error when a kernel gave up, naming who waited for whom.
  void check(device::Stream& stream);

  [[nodiscard]] int rank() const { return links_.rank; }
  [[nodiscard]] int world() const { return links_.world; }
  [[nodiscard]] const PeerMemory& transport() const { return memory_; }
  // Whether the row runs with these links: as run() finds it, without its error.
  [[nodiscard]] bool takes(const sched::Algorithm& row, int root) const;

 private:
  // A row's program on the device.
  struct Program {
    sched::Contract contract;
    device::Memory steps;
    device::Memory scratch_chunk;
    int step_count = 0;
    int scratch_slots = 0;
    int chunks_most = 1;           // of one message, over all ranks
    std::int64_t chunks_sent = 0;  // by this rank in a call
  };
  const Program& program(const sched::Algorithm& row, int root, device::Stream& stream);
  [[nodiscard]] ResidentCall call_of(const Program& program, Protocol protocol,
                                     const ResidentWork& work);
  void end_average(const sched::Contract& contract, const ResidentWork& work,
                   device::Stream& stream) const;
  void note(const sched::Algorithm& row, int root, const ResidentWork& work);
  [[noreturn]] void raise_mismatch(std::uint64_t word, device::Stream& stream) const;
  [[nodiscard]] std::string describe_call(std::uint64_t number) const;

  ResidentOptions options_;
  PeerMemory memory_;
  Links links_{};
  // The latest calls, call number n at (n - 1) % kCallsKept: what a report of a failure names.
  static constexpr std::size_t kCallsKept = 256;
  std::vector<CallInfo> calls_;
  std::uint64_t call_count_ = 0;
  std::uint32_t history_ = 0;  // of the calls' signatures
  device::Memory scratch_;
  std::vector<device::Memory> outgrown_;  // queued and recorded calls use them
  std::map<std::pair<const sched::Algorithm*, int>, Program> programs_;
  mutable std::map<std::pair<const sched::Algorithm*, int>, bool> takes_;  // asked before
};

}  // namespace sinew::comm
