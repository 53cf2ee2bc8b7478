#include "comm/messages.h"

#include <algorithm>
#include <utility>

#include "kernels/reduce.h"
#include "sched/base/check.h"

namespace sinew::comm {

Messages::Messages(Transport& transport, int rank, int world)
    : transport_(transport), rank_(rank), queues_(static_cast<std::size_t>(world) * kLanes * 2) {}

TransferQueue& Messages::queue_of(const Transfer& transfer) {
  const std::size_t lane =
      static_cast<std::size_t>(transfer.peer) * kLanes + static_cast<std::size_t>(transfer.lane);
  return queues_[lane * 2 + static_cast<std::size_t>(transfer.direction)];
}

Transfer& Messages::start(const MessageAsk& ask) {
  std::unique_ptr<Transfer> owned;
  if (spare_.empty()) {
    owned = std::make_unique<Transfer>();
  } else {
    owned = std::move(spare_.back());
    spare_.pop_back();
  }
  Transfer& started = *owned;
  static_cast<MessageAsk&>(started) = ask;
  started.moved = 0;
  started.newest = 0;
  started.opened = started.complete = started.detached = false;
  started.queue = &queue_of(started);
  started.turn = started.queue->started++;
  // The queue's turn is the call number of a message: the i-th send meets the i-th receive.
  started.flag = flag_of(started.turn + 1, signature_of(started.call.packed(), started.call.count));
  started.at = active_.size();
  active_.push_back(std::move(owned));
  if (started.peer == rank_) {
    meet_self(started);
  } else {
    join(started);
  }
  return started;
}

void Messages::join(Transfer& transfer) {
  TransferQueue& queue = *transfer.queue;
  (queue.head == nullptr ? queue.head : queue.last->next) = &transfer;
  queue.last = &transfer;
  queue.told = false;
  if (!std::exchange(queue.busy, true)) busy_.push_back(&queue);
}

void Messages::pass_turn(Transfer& transfer) {
  TransferQueue& queue = *transfer.queue;
  CHECK(queue.head == &transfer);
  queue.head = std::exchange(transfer.next, nullptr);
  queue.told = false;
}

void Messages::retire(Transfer& transfer) {
  CHECK(transfer.complete);
  std::unique_ptr<Transfer>& place = active_[transfer.at];
  CHECK(place.get() == &transfer);
  spare_.push_back(std::move(place));
  if (&place != &active_.back()) {
    place = std::move(active_.back());
    place->at = transfer.at;
  }
  active_.pop_back();
}

bool Messages::under_way() const {
  return std::ranges::any_of(active_, [](const std::unique_ptr<Transfer>& transfer) {
    return !transfer->complete && !transfer->detached;
  });
}

Progress Messages::progress() {
  bool moved = false;
  std::erase_if(busy_, [&](TransferQueue* queue) {
    moved |= advance(*queue);
    queue->busy = queue->head != nullptr;
    return !queue->busy;
  });
  std::erase_if(leaving_, [&](Transfer* transfer) {
    const bool released = notice_release(*transfer);
    moved |= released;
    return released;
  });
  if (fault_.kind != Fault::Kind::kNone) return Progress::kFailed;
  return moved ? Progress::kMoved : Progress::kIdle;
}

Progress Messages::progress(Transfer& transfer) {
  const bool moved = !transfer.complete && advance(transfer);
  if (fault_.kind != Fault::Kind::kNone) return Progress::kFailed;
  return moved ? Progress::kMoved : Progress::kIdle;
}

// Those that wait in it, one after the other, as far as they get.
bool Messages::advance(TransferQueue& queue) {
  bool moved = false;
  while (Transfer* const first = queue.head) {
    moved |= advance(*first);
    if (queue.head == first) break;
  }
  return moved;
}

bool Messages::advance(Transfer& transfer) {
  if (transfer.peer == rank_) return false;
  const bool has_turn = transfer.queue->head == &transfer;
  if (transfer.direction == Transfer::Direction::kSend) return has_turn && advance_send(transfer);
  if (!transfer.queue->told) tell_wanted(*transfer.queue);
  return has_turn && advance_receive(transfer);
}

// The next receive too, so that what it waits for crosses the network while the first one's bytes
// arrive.
void Messages::tell_wanted(TransferQueue& queue) {
  const Transfer& first = *queue.head;
  const std::int64_t rest = first.size - first.moved;
  if (rest == 0) return;
  Wanted then;
  if (first.next != nullptr) then = {first.next->target, first.next->size, first.next->size};
  transport_.expect(first.peer, first.lane, {first.target + first.moved, rest, rest}, then);
  queue.told = true;
}

bool Messages::advance_send(Transfer& transfer) {
  bool moved = false;
  while (transfer.moved < transfer.size || !transfer.opened) {
    const Sent sent = transport_.send(transfer.peer, transfer.lane, transfer.flag,
                                      transfer.source + transfer.moved,
                                      transfer.size - transfer.moved, Source::kPushed);
    if (sent.size_bytes == Sent::kNoCredit) return moved;
    moved = true;
    transfer.opened = true;
    transfer.moved += sent.size_bytes;
    if (sent.exposed) transfer.newest = sent.sequence;
    if (transfer.moved == transfer.size) pass_turn(transfer);
  }
  if (!notice_release(transfer)) leaving_.push_back(&transfer);
  return true;
}

bool Messages::notice_release(Transfer& transfer) {
  if (transfer.newest != 0 && !transport_.released(transfer.peer, transfer.lane, transfer.newest))
    return false;
  transfer.complete = true;
  return true;
}

bool Messages::advance_receive(Transfer& transfer) {
  bool moved = false;
  Message message;
  while (!transfer.complete && transport_.peek(transfer.peer, transfer.lane, &message)) {
    // One that is too long cannot be of this transfer either.
    if (message.flag != transfer.flag || transfer.moved + message.size_bytes > transfer.size) {
      fault_ = {Fault::Kind::kForeignMessage, transfer.peer, message.flag};
      failed_ = &transfer;
      return false;
    }
    if (!take(transfer, message)) return false;
    transfer.moved += message.size_bytes;
    transport_.release(transfer.peer, transfer.lane);
    moved = true;
    if (transfer.moved == transfer.size) {
      transfer.complete = true;
      pass_turn(transfer);
    }
  }
  return moved;
}

bool Messages::take(const Transfer& transfer, const Message& message) {
  std::byte* const target = transfer.target + transfer.moved;
  if (message.data != nullptr) {
    if (message.data != target) kernels::copy(target, message.data, message.size_bytes);
    return true;
  }
  if (message.remote != 0 && transport_.read(transfer.peer, message, 0, target, message.size_bytes))
    return true;
  fault_ = {message.remote == 0 ? Fault::Kind::kUnmapped : Fault::Kind::kNotRead, transfer.peer,
            message.flag};
  failed_ = &transfer;
  return false;
}

// The later of a pair finds the earlier one among the active transfers; the i-th meets the i-th.
void Messages::meet_self(Transfer& transfer) {
  const bool sends = transfer.direction == Transfer::Direction::kSend;
  for (const std::unique_ptr<Transfer>& other : active_) {
    if (other->peer != rank_ || other->lane != transfer.lane ||
        other->direction == transfer.direction || other->turn != transfer.turn) {
      continue;
    }
    Transfer& send = sends ? transfer : *other;
    Transfer& receive = sends ? *other : transfer;
    if (send.flag != receive.flag) {
      fault_ = {Fault::Kind::kForeignMessage, rank_, send.flag};
      failed_ = &receive;
      return;
    }
    kernels::copy(receive.target, send.source, send.size);
    send.complete = receive.complete = true;
    if (send.detached) retire(send);
    return;
  }
}

bool Messages::self_send_waits(int lane) const {
  const std::size_t queues =
      (static_cast<std::size_t>(rank_) * kLanes + static_cast<std::size_t>(lane)) * 2;
  return queues_[queues].started > queues_[queues + 1].started;
}

void Messages::detach(Transfer& transfer) {
  CHECK_EQ(transfer.peer, rank_);
  transfer.held.assign(transfer.source, transfer.source + transfer.size);
  transfer.source = transfer.held.data();
  transfer.detached = true;
}

}  // namespace sinew::comm
