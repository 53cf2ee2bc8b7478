#include "model/mailbox.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"
#include "model/parallel.h"
#include "sched/base/check.h"
#include "sched/pipeline/streams.h"

namespace sinew::model {

namespace {

using sched::PipeAction;
using sched::PipeVerb;

// The two directions never share a stream: two ranks may be both neighbours of each other.
int tag_of(Direction direction) { return direction == Direction::kForward ? 0 : 1; }

Direction direction_of(PipeVerb verb) {
  const bool forward = verb == PipeVerb::kSendForward || verb == PipeVerb::kRecvForward;
  return forward ? Direction::kForward : Direction::kBackward;
}

// Most messages at once between `begin` and `end`, which name the same stage and microbatch, among
// those of a stream.
std::size_t most_between(const std::vector<PipeAction>& program, PipeVerb begin, PipeVerb end,
                         const std::vector<bool>& stages) {
  std::size_t now = 0;
  std::size_t most = 0;
  for (const PipeAction& action : program) {
    if (!stages[action.stage]) continue;
    if (action.verb == begin) most = std::max(most, ++now);
    if (action.verb == end) --now;
  }
  return most;
}

// The stages of a rank whose neighbour (step +1 or -1) lies on `peer`.
std::vector<bool> stages_beside(const sched::PipeSchedule& schedule, int rank, int peer, int step) {
  std::vector<bool> beside(static_cast<std::size_t>(schedule.stages()), false);
  for (const int stage : sched::stages_of(schedule, rank)) {
    const int other = stage + step;
    beside[static_cast<std::size_t>(stage)] =
        other >= 0 && other < schedule.stages() && schedule.rank_of(other) == peer;
  }
  return beside;
}

}  // namespace

template <typename T>
Mailbox<T>::Mailbox(const sched::PipeSchedule& schedule, int rank, int credits, std::int64_t count,
                    comm::Communicator* pipeline, kernels::Threads threads, Arena& arena)
    : schedule_(schedule),
      ahead_(static_cast<std::size_t>(std::max(1, credits))),
      count_(count),
      pipeline_(pipeline),
      threads_(threads),
      staged_(threads.accelerator != nullptr && pipeline != nullptr &&
              !pipeline->sends_from_device()) {
  const auto& program = schedule.actions[static_cast<std::size_t>(rank)];
  for (const sched::PipeStream& s : sched::streams_of(schedule)) {
    const Direction direction = s.forward ? Direction::kForward : Direction::kBackward;
    Stream stream{.peer = s.target == rank ? s.source : s.target, .direction = direction};
    std::size_t buffers = 0;
    if (s.target == rank) {
      for (const sched::PipePlace& place : s.receives)
        stream.order.push_back(
            {.stage = program[place.index].stage, .microbatch = program[place.index].microbatch});
      const auto stages = stages_beside(schedule, rank, stream.peer, s.forward ? -1 : 1);
      buffers = ahead_ + most_between(program,
                                      s.forward ? PipeVerb::kRecvForward : PipeVerb::kRecvBackward,
                                      s.forward ? PipeVerb::kForward : PipeVerb::kBackward, stages);
    } else if (s.source == rank) {
      const auto stages = stages_beside(schedule, rank, stream.peer, s.forward ? 1 : -1);
      buffers =
          1 + most_between(program, s.forward ? PipeVerb::kForward : PipeVerb::kBackward,
                           s.forward ? PipeVerb::kSendForward : PipeVerb::kSendBackward, stages);
    } else {
      continue;
    }
    CHECK(pipeline != nullptr);
    for (std::size_t i = 0; i < buffers; ++i) stream.free.push_back(arena.allocate<T>(count));
    (s.target == rank ? incoming_ : outgoing_).push_back(std::move(stream));
  }
  if (staged_) single_ = arena.allocate<T>(count);
}

template <typename T>
void Mailbox<T>::wait_for_device() {
  if (copies_) kernels::synchronize(threads_);
  copies_ = false;
}

template <typename T>
void Mailbox<T>::begin_step() {
  for (Stream& stream : incoming_) {
    stream.posted = stream.received = 0;
    CHECK(stream.waiting.empty());
    post(stream);
  }
}

template <typename T>
void Mailbox<T>::post(Stream& stream) {
  while (stream.posted < stream.order.size() && stream.posted - stream.received < ahead_) {
    CHECK(!stream.free.empty());
    wait_for_device();
    Letter& letter = stream.order[stream.posted++];
    letter.buffer = stream.free.back();
    stream.free.pop_back();
    letter.request = pipeline_->start_recv(letter.buffer, count_, dtype_of_v<T>, stream.peer,
                                           tag_of(stream.direction));
  }
}

template <typename T>
void Mailbox<T>::progress() {
  for (Stream& stream : incoming_) {
    if (stream.received == stream.posted) continue;
    comm::Request& request = stream.order[stream.received].request;
    if (request.pending()) static_cast<void>(request.test());
  }
  for (Stream& stream : outgoing_) {
    if (!stream.moving.empty() && stream.moving.front().request.pending())
      static_cast<void>(stream.moving.front().request.test());
  }
}

template <typename T>
void Mailbox<T>::receive(const PipeAction& action) {
  Stream& stream = incoming(direction_of(action.verb), action.stage);
  CHECK_LT(stream.received, stream.posted);
  Letter& letter = stream.order[stream.received];
  CHECK_EQ(letter.stage, static_cast<int>(action.stage));
  CHECK_EQ(letter.microbatch, action.microbatch);
  if (letter.request.pending()) letter.request.wait();
  ++stream.received;
  stream.waiting.push_back(
      {.stage = letter.stage, .microbatch = letter.microbatch, .buffer = letter.buffer});
  post(stream);
}

template <typename T>
void Mailbox<T>::take(Direction direction, int stage, std::uint32_t microbatch, T*& buffer) {
  Stream& stream = incoming(direction, stage);
  const Letter letter = pull(stream.waiting, stage, microbatch);
  T* message = letter.buffer;
  if (staged_) {
    kernels::copy<T>(buffer, message, count_, threads_);
    copies_ = true;
  } else {
    std::swap(buffer, message);
  }
  stream.free.push_back(message);
}

template <typename T>
void Mailbox<T>::put(Direction direction, int stage, std::uint32_t microbatch, T*& buffer) {
  Stream& stream = outgoing(direction, stage);
  if (stream.free.empty()) {
    CHECK(!stream.moving.empty());
    Letter& oldest = stream.moving.front();
    if (oldest.request.pending()) oldest.request.wait();
    stream.free.push_back(oldest.buffer);
    stream.moving.erase(stream.moving.begin());
  }
  T* message = stream.free.back();
  stream.free.pop_back();
  if (staged_) {
    kernels::copy<T>(message, buffer, count_, threads_);
    copies_ = true;
  } else {
    std::swap(buffer, message);
  }
  stream.waiting.push_back({.stage = stage, .microbatch = microbatch, .buffer = message});
}

template <typename T>
void Mailbox<T>::send(const PipeAction& action) {
  Stream& stream = outgoing(direction_of(action.verb), action.stage);
  Letter letter = pull(stream.waiting, action.stage, action.microbatch);
  wait_for_device();
  letter.request = pipeline_->start_send(letter.buffer, count_, dtype_of_v<T>, stream.peer,
                                         tag_of(stream.direction));
  stream.moving.push_back(std::move(letter));
}

template <typename T>
void Mailbox<T>::end_step() {
  for (Stream& stream : outgoing_) {
    CHECK(stream.waiting.empty());
    for (Letter& letter : stream.moving) {
      if (letter.request.pending()) letter.request.wait();
      stream.free.push_back(letter.buffer);
    }
    stream.moving.clear();
  }
}

template <typename T>
void Mailbox<T>::receive_now(int peer, T* target) {
  wait_for_device();
  T* landing = staged_ ? single_ : target;
  pipeline_->recv(landing, count_, dtype_of_v<T>, peer);
  if (staged_) {
    kernels::copy<T>(target, landing, count_, threads_);
    copies_ = true;
  }
}

template <typename T>
void Mailbox<T>::send_now(int peer, const T* source) {
  if (staged_) {
    kernels::copy<T>(single_, source, count_, threads_);
    copies_ = true;
    wait_for_device();
    source = single_;
  }
  pipeline_->send(source, count_, dtype_of_v<T>, peer);
}

template <typename T>
typename Mailbox<T>::Stream& Mailbox<T>::incoming(Direction direction, int stage) {
  const int peer = schedule_.rank_of(stage + (direction == Direction::kForward ? -1 : 1));
  const auto found = std::find_if(incoming_.begin(), incoming_.end(), [&](const Stream& s) {
    return s.peer == peer && s.direction == direction;
  });
  CHECK(found != incoming_.end());
  return *found;
}

template <typename T>
typename Mailbox<T>::Stream& Mailbox<T>::outgoing(Direction direction, int stage) {
  const int peer = schedule_.rank_of(stage + (direction == Direction::kForward ? 1 : -1));
  const auto found = std::find_if(outgoing_.begin(), outgoing_.end(), [&](const Stream& s) {
    return s.peer == peer && s.direction == direction;
  });
  CHECK(found != outgoing_.end());
  return *found;
}

template <typename T>
typename Mailbox<T>::Letter Mailbox<T>::pull(std::vector<Letter>& letters, int stage,
                                             std::uint32_t microbatch) {
  const auto found = std::find_if(letters.begin(), letters.end(), [&](const Letter& letter) {
    return letter.stage == stage && letter.microbatch == microbatch;
  });
  CHECK(found != letters.end());
  Letter letter = std::move(*found);
  letters.erase(found);
  return letter;
}

template class Mailbox<float>;
template class Mailbox<double>;
template class Mailbox<bf16>;

}  // namespace sinew::model
