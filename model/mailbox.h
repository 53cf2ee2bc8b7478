// Mailbox: the messages of one rank in a training step of a pipeline schedule.
//
// Never does: choose an order: each stream (peer and direction) sends and receives in the
// schedule's. Threads: one rank, one thread.
//
// A message is traded, not copied: put() takes a buffer and leaves a free one in its place, take()
// the other way round. Each incoming stream has as many receives posted ahead of the program as the
// schedule's proof asks for (PipeFacts::credits), so a send waits for no later action of the
// receiver than the proof allows. Buffers of a stream: those posted, those that the program has
// received before a computation takes them; and for sending one more than the program makes before
// it sends them.
//
// An accelerator's messages lie in its memory and go from device to device, all in its order. Where
// they cannot (Communicator::sends_from_device), they are host memory: copied and not traded, and
// the rank waits for its device before a message leaves or a buffer is reused.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "kernels/threads.h"
#include "model/arena.h"
#include "sched/pipeline/schedule.h"

namespace sinew::model {

enum class Direction : std::uint8_t { kForward, kBackward };

template <typename T>
class Mailbox {
 public:
  // rank: along the pipeline. count: elements of every message. pipeline may be null when the
  // schedule has no messages on this rank.
  Mailbox(const sched::PipeSchedule& schedule, int rank, int credits, std::int64_t count,
          comm::Communicator* pipeline, kernels::Threads threads, Arena& arena);

  void begin_step();
  // Lets messages move while the rank has other work.
  void progress();
  // The schedule's action of receiving: waits for the stream's next message, which this must be.
  void receive(const sched::PipeAction& action);
  // What was received for a computation of (stage, microbatch): its input or the gradient of its
  // output. The buffer handed over is used for other messages.
  void take(Direction direction, int stage, std::uint32_t microbatch, T*& buffer);
  // What a computation of (stage, microbatch) made for another rank.
  void put(Direction direction, int stage, std::uint32_t microbatch, T*& buffer);
  // The schedule's action of sending it.
  void send(const sched::PipeAction& action);
  // All messages have gone.
  void end_step();

  // Outside of a step: one message, waited for.
  void receive_now(int peer, T* target);
  void send_now(int peer, const T* source);

 private:
  // Of (stage, microbatch) that the message belongs to on this rank.
  struct Letter {
    int stage = 0;
    std::uint32_t microbatch = 0;
    T* buffer = nullptr;
    comm::Request request{};
  };
  struct Stream {
    int peer = 0;
    Direction direction = Direction::kForward;
    std::vector<Letter> order{};    // incoming: all of a step, in the stream's order
    std::size_t posted = 0;         // of them
    std::size_t received = 0;       // of them
    std::vector<Letter> waiting{};  // incoming: received, not taken; outgoing: made, not sent
    std::vector<Letter> moving{};   // outgoing: sent, perhaps not gone; oldest first
    std::vector<T*> free{};
  };

  [[nodiscard]] Stream& incoming(Direction direction, int stage);
  [[nodiscard]] Stream& outgoing(Direction direction, int stage);
  void post(Stream& stream);
  [[nodiscard]] static Letter pull(std::vector<Letter>& letters, int stage,
                                   std::uint32_t microbatch);
  void wait_for_device();

  const sched::PipeSchedule& schedule_;
  std::size_t ahead_;  // receives posted ahead
  std::int64_t count_;
  comm::Communicator* pipeline_;
  kernels::Threads threads_;
  bool staged_;          // buffers of computations are an accelerator's, messages are not
  bool copies_ = false;  // that the device may not have made yet
  T* single_ = nullptr;  // of a message outside of a step; staged only
  std::vector<Stream> incoming_;
  std::vector<Stream> outgoing_;
};

}  // namespace sinew::model
