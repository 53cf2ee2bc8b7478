// DeviceMessages: point to point on device memory that the peers map, each end one kernel.
//
// A block of a kernel is a channel: it takes its share of the message, piece by piece, through the
// slots of the receiver's link (links.h; protocol simple), one for each peer and tag. Counts run
// over all launches and lie in device memory, so that a message may be recorded into a graph and
// repeated. Every piece carries the message's size: ends that differ in it are told.
//
// Never does: choose a stream. DeviceMessages of one peer and tag must be queued on one stream for
// each end; those of different peers, tags or ends may run at once. Threads: one object per rank,
// one thread at a time; peers run concurrently. Errors: a kernel that waits longer than timeout_s
// ends, and so do those of all ranks; check() then throws comm::Error, naming who waited for whom,
// or the two sizes. Cost: a store into the peer's memory and a load there for every byte.
#pragma once

#include <cstdint>

#include "comm/bootstrap.h"
#include "comm/device/resident.h"

namespace sinew::comm {

// A message's place in this device's memory, naturally aligned.
struct DeviceMessage {
  char* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kU8;
  int peer = 0;
  int tag = 0;
};

// What the kernels are told (messages.cu).
struct MessageCall {
  Links links;
  char* data;
  std::int64_t size_bytes;
  std::uint64_t timeout_ns;
  std::uint64_t flag;  // what a wait that is given up reports: the message's number
  int peer;
  int lane;
  int segments;
  int element_bytes;
};

void launch_send(const MessageCall& call, unsigned threads, device::Stream& stream);
void launch_receive(const MessageCall& call, unsigned threads, device::Stream& stream);

class DeviceMessages {
 public:
  static constexpr int kTags = kLinkLanes;

  // Collective: memory is reserved and mapped by all. Throws as Resident does.
  DeviceMessages(Bootstrap& bootstrap, const ResidentOptions& options);
  // Collective: when it returns no peer uses this rank's memory any more.
  void close(Bootstrap& bootstrap) { memory_.close(bootstrap); }

  // Throws UsageError on a tag that there is no link for.
  void send(const DeviceMessage& message, device::Stream& stream);
  void receive(const DeviceMessage& message, device::Stream& stream);

  // Waits for the stream. Throws comm::Error when a kernel gave up.
  void check(device::Stream& stream);

 private:
  [[nodiscard]] MessageCall call_of(const DeviceMessage& message);

  ResidentOptions options_;
  PeerMemory memory_;
  Links links_{};
  std::uint64_t count_ = 0;  // of messages, for reports
};

}  // namespace sinew::comm
