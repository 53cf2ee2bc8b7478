// Messages: point-to-point sends and receives in flight. The i-th send to a peer with a tag meets
// the i-th receive from this rank with that tag; each (peer, tag, direction) is one queue, and
// queues do not wait for each other.
//
// Never does: wait or throw.
// Threads: one thread.
// A message to the own rank is copied once: when its receive is started, or, if its send came first
// and must not block, into a buffer and from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/call.h"
#include "comm/executor.h"
#include "comm/transport.h"

namespace sinew::comm {

struct TransferQueue;

// What a caller asks for.
struct MessageAsk {
  enum class Direction : std::uint8_t { kSend, kReceive } direction = Direction::kSend;
  CallInfo call;
  int peer = 0;
  int lane = 0;  // kFirstTagLane + tag, or kSetupLane
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::int64_t size = 0;
};

struct Transfer : MessageAsk {
  TransferQueue* queue = nullptr;
  Transfer* next = nullptr;  // started after it in its queue
  std::uint64_t turn = 0;    // place in its queue
  std::size_t at = 0;        // among the active ones
  std::uint64_t flag = 0;
  std::int64_t moved = 0;
  std::uint64_t newest = 0;  // exposed message to be released, 0: none
  bool opened = false;
  bool complete = false;
  std::vector<std::byte> held;  // of a detached send to the own rank: its bytes
  bool detached = false;        // nobody waits for it: retired when it is met
};

// Those that wait for their turn, the oldest first; of messages to the own rank, which wait for no
// turn, only how many there were.
struct TransferQueue {
  std::uint64_t started = 0;
  Transfer* head = nullptr;
  Transfer* last = nullptr;
  bool told = false;  // the transport knows where the oldest two receives want their bytes
  bool busy = false;  // among those that progress() looks at
};

class Messages {
 public:
  Messages(Transport& transport, int rank, int world);

  // The result stays valid until retire().
  [[nodiscard]] Transfer& start(const MessageAsk& ask);
  void retire(Transfer& transfer);

  // kMoved when any transfer moved, kFailed with `fault` and the transfer at fault.
  [[nodiscard]] Progress progress();
  // The same of one transfer.
  [[nodiscard]] Progress progress(Transfer& transfer);
  [[nodiscard]] bool idle() const { return active_.empty(); }
  // Whether somebody still has to wait for one that is not complete.
  [[nodiscard]] bool under_way() const;
  [[nodiscard]] const Fault& fault() const { return fault_; }
  [[nodiscard]] const Transfer* failed() const { return failed_; }
  // Whether the next receive from the own rank in this lane has its send.
  [[nodiscard]] bool self_send_waits(int lane) const;
  // Lets go of a send to the own rank that no receive met yet: keeps its bytes instead of its
  // buffer.
  void detach(Transfer& transfer);

 private:
  [[nodiscard]] TransferQueue& queue_of(const Transfer& transfer);
  void join(Transfer& transfer);
  static void pass_turn(Transfer& transfer);
  void tell_wanted(TransferQueue& queue);
  bool advance(Transfer& transfer);
  bool advance(TransferQueue& queue);
  bool advance_send(Transfer& transfer);
  bool notice_release(Transfer& transfer);
  bool advance_receive(Transfer& transfer);
  // Puts a message into its place; false after a fault.
  bool take(const Transfer& transfer, const Message& message);
  void meet_self(Transfer& transfer);

  Transport& transport_;
  int rank_;
  std::vector<TransferQueue> queues_;  // [peer][lane][direction]
  std::vector<std::unique_ptr<Transfer>> active_;
  // What progress() looks at, so that it costs no more the more transfers wait for their turn.
  std::vector<TransferQueue*> busy_;  // may have become empty
  std::vector<Transfer*> leaving_;    // sends whose turn is over, not released
  std::vector<std::unique_ptr<Transfer>> spare_;
  Fault fault_;
  const Transfer* failed_ = nullptr;
};

}  // namespace sinew::comm
