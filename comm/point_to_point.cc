// Engine's point-to-point half: arguments, starting and waiting for transfers.
#include <fmt/core.h>

#include <limits>

#include "comm/engine.h"
#include "sched/base/error.h"

namespace sinew::comm {

static_assert(Communicator::kTags == kTagLanes);

MessageAsk Engine::message_ask(std::int64_t count, DType dtype, int peer, int tag) const {
  if (count < 0)
    throw UsageError(fmt::format("count {} is negative; legal values: 0 and more", count));
  const std::int64_t most =
      std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(size_of(dtype));
  if (count > most) {
    throw UsageError(fmt::format("count {} of {} takes more than 2^63 bytes; legal values: 0 to {}",
                                 count, name_of(dtype), most));
  }
  if (peer < 0 || peer >= world_) {
    throw UsageError(fmt::format("peer {} is no rank; legal values: 0 to {}", peer, world_ - 1));
  }
  if (tag < 0 || tag >= kTagLanes) {
    throw UsageError(
        fmt::format("tag {} is out of range; legal values: 0 to {}", tag, kTagLanes - 1));
  }
  return {.call = {.kind = CallKind::kMessage,
                   .dtype = dtype,
                   .tag = static_cast<std::uint16_t>(tag),
                   .count = count},
          .peer = peer,
          .lane = kFirstTagLane + tag,
          .size = count * static_cast<std::int64_t>(size_of(dtype))};
}

namespace {

void check_data(const void* data, std::int64_t size) {
  if (size > 0 && data == nullptr)
    throw UsageError(fmt::format("data is null but {} bytes are expected there", size));
}

}  // namespace

void Engine::check_message(const void* data, std::int64_t count, DType dtype, int peer,
                           int tag) const {
  check_data(data, message_ask(count, dtype, peer, tag).size);
}

Transfer& Engine::start_transfer(const MessageAsk& ask) {
  raise_if_poisoned();
  check_data(ask.source != nullptr ? ask.source : ask.target, ask.size);
  Transfer& started = messages_->start(ask);
  const bool sends = ask.direction == MessageAsk::Direction::kSend;
  if (sends) block_->roster->note_send(started.flag, started.call);
  if (ask.lane != kSetupLane) {
    Counter& counter = sends ? counters_.send : counters_.recv;
    ++counter.calls;
    counter.elements += ask.call.count;
    counter.payload_bytes += ask.size;
    if (sends) counter.sent_bytes += ask.size;
  }
  if (progress_of(started) == Progress::kFailed) raise_fault();
  return started;
}

// Over a network only the transfer itself is tried: a look at what came costs a system call, and
// one at all that is under way grows with their number. Whoever waits does both.
Progress Engine::progress_of(Transfer& started) {
  if (block_->network == nullptr) return progress();
  const std::lock_guard lock(block_->network->transport().mutex());
  return messages_->progress(started);
}

Transfer& Engine::start_send(const void* data, std::int64_t count, DType dtype, int peer, int tag) {
  MessageAsk ask = message_ask(count, dtype, peer, tag);
  ask.direction = MessageAsk::Direction::kSend;
  ask.source = static_cast<const std::byte*>(data);
  return start_transfer(ask);
}

Transfer& Engine::start_recv(void* data, std::int64_t count, DType dtype, int peer, int tag) {
  MessageAsk ask = message_ask(count, dtype, peer, tag);
  ask.direction = MessageAsk::Direction::kReceive;
  ask.target = static_cast<std::byte*>(data);
  return start_transfer(ask);
}

void Engine::send(const void* data, std::int64_t count, DType dtype, int peer, int tag) {
  Transfer& transfer = start_send(data, count, dtype, peer, tag);
  if (peer == rank_ && !transfer.complete) {
    messages_->detach(transfer);
  } else {
    wait(transfer);
  }
}

void Engine::recv(void* data, std::int64_t count, DType dtype, int peer, int tag) {
  if (peer == rank_ && !messages_->self_send_waits(message_ask(count, dtype, peer, tag).lane)) {
    throw UsageError(fmt::format("recv from the own rank {}, tag {}: no send to it was made before",
                                 rank_, tag));
  }
  wait(start_recv(data, count, dtype, peer, tag));
}

void Engine::wait(Transfer& transfer) {
  wait(Pending{.transfer = &transfer});
  messages_->retire(transfer);
}

bool Engine::test(Transfer& transfer) {
  const bool done = test(Pending{.transfer = &transfer});
  if (done) messages_->retire(transfer);
  return done;
}

}  // namespace sinew::comm
