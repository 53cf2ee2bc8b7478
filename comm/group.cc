#include "comm/group.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "comm/engine.h"
#include "sched/base/error.h"

namespace sinew::comm {

// One noted call: a message or a collective with what it points at.
struct Group::Entry {
  Communicator* communicator = nullptr;
  bool is_message = false;
  Note message;
  Ask ask;
  std::string algorithm;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> output_counts;
  std::array<std::byte, sizeof(std::uint64_t)> factor{};
};

// The collectives of one communicator, in their order.
struct Group::Queue {
  Communicator* communicator = nullptr;
  std::vector<const Entry*> calls;
  std::vector<Request> requests;  // of the first of them
};

// A group of a thread is known by its engines, so that a call outside any asks nothing but its own.
Group::Group() {
  for (Engine* const engine : Engine::of_thread()) {
    if (engine->group() == nullptr) engine->set_group(this);
  }
}

Group::~Group() { close(); }

void Group::close() {
  for (Engine* const engine : Engine::of_thread()) {
    if (engine->group() == this) engine->set_group(nullptr);
  }
}

template <typename Check>
void Group::checked(const Check& check) {
  try {
    check();
  } catch (const UsageError& error) {
    if (refused_.empty()) refused_ = error.what();
    throw;
  }
}

void Group::lose(const Communicator& communicator) {
  const bool noted = std::ranges::any_of(
      entries_, [&](const auto& entry) { return entry->communicator == &communicator; });
  if (noted && refused_.empty()) refused_ = "its communicator was destroyed before the group ended";
}

void Group::add(Communicator& communicator, const Ask& ask, Call call) {
  checked([&] { communicator.engine_->check_call(ask, call.algorithm); });
  auto entry = std::make_unique<Entry>();
  entry->communicator = &communicator;
  entry->ask = ask;
  entry->algorithm = call.algorithm;
  if (ask.counts != nullptr) {
    entry->counts.assign(ask.counts, ask.counts + ask.parts);
    entry->ask.counts = entry->counts.data();
  }
  if (ask.output_counts != nullptr) {
    entry->output_counts.assign(ask.output_counts, ask.output_counts + ask.output_parts);
    entry->ask.output_counts = entry->output_counts.data();
  }
  if (ask.factor != nullptr) {
    std::memcpy(entry->factor.data(), ask.factor, size_of(ask.dtype));
    entry->ask.factor = entry->factor.data();
  }
  entries_.push_back(std::move(entry));
}

void Group::add(Communicator& communicator, const Note& note) {
  checked([&] {
    communicator.engine_->check_message(note.sends ? note.source : note.target, note.count,
                                        note.dtype, note.peer, note.tag);
  });
  auto entry = std::make_unique<Entry>();
  entry->communicator = &communicator;
  entry->is_message = true;
  entry->message = note;
  entries_.push_back(std::move(entry));
}

Request Group::start(const Entry& entry) {
  Communicator& communicator = *entry.communicator;
  if (!entry.is_message) return communicator.start_now(entry.ask, {.algorithm = entry.algorithm});
  const Note& note = entry.message;
  return note.sends
             ? communicator.start_send(note.source, note.count, note.dtype, note.peer, note.tag)
             : communicator.start_recv(note.target, note.count, note.dtype, note.peer, note.tag);
}

std::vector<Group::Queue> Group::queues() const {
  std::vector<Queue> found;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->is_message) continue;
    auto at = std::find_if(found.begin(), found.end(), [&](const Queue& queue) {
      return queue.communicator == entry->communicator;
    });
    if (at == found.end()) at = found.insert(at, Queue{entry->communicator, {}, {}});
    at->calls.push_back(entry.get());
  }
  return found;
}

// Layer i is the i-th collective of every communicator. A rank that waits for layer i has started
// the next layers too, so many as a communicator has places for. Hence whoever is in the earliest
// layer of all waits for what every other rank has started: it goes on, and so does everyone.
void Group::run() {
  close();
  if (!refused_.empty())
    throw UsageError("a call in the group was refused, so that none of it was made: " + refused_);
  std::vector<Request> messages;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->is_message) messages.push_back(start(*entry));
  }
  std::vector<Queue> queues = this->queues();
  std::size_t layers = 0;
  for (const Queue& queue : queues) layers = std::max(layers, queue.calls.size());
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (Queue& queue : queues) {
      const std::size_t until = std::min(queue.calls.size(), layer + Engine::kStartedPlaces);
      while (queue.requests.size() < until)
        queue.requests.push_back(start(*queue.calls[queue.requests.size()]));
    }
    for (Queue& queue : queues) {
      if (layer < queue.calls.size() && queue.requests[layer].pending())
        queue.requests[layer].wait();
    }
  }
  for (Request& message : messages) message.wait();
  entries_.clear();
}

void group(const std::function<void()>& calls) {
  Group together;
  calls();
  together.run();
}

}  // namespace sinew::comm
