#include "tools/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>

#include "sched/base/check.h"
#include "sched/base/text.h"

namespace sinew::tools {
namespace {

using sched::Schedule;
using sched::Slot;
using sched::Space;
using sched::Step;
using sched::Verb;

// What a slot holds: the chunk it is about and who contributed.
struct Value {
  int chunk = -1;
  std::uint64_t ranks = 0;
};

class Replay {
 public:
  explicit Replay(const Schedule& schedule) : schedule_(schedule), world_(schedule.contract.world) {
    CHECK_LE(world_, 64);
    ranks_.resize(static_cast<std::size_t>(world_));
    for (int r = 0; r < world_; ++r) begin(r);
  }

  std::vector<Round> run() {
    settle();
    rounds_.push_back(snapshot({}));
    for (std::vector<Message> sent = exchange(); !sent.empty(); sent = exchange()) {
      settle();
      rounds_.push_back(snapshot(std::move(sent)));
    }
    return rounds_;
  }

 private:
  struct Rank {
    std::vector<std::size_t> first_dependence;  // per step, into the program's dependences
    std::vector<bool> done;
    std::map<std::uint32_t, Value> slots;
  };

  struct Delivery {
    int to;
    std::size_t step;
    std::vector<Value> values;
  };

  void begin(int r) {
    const sched::Program& program = schedule_.programs[static_cast<std::size_t>(r)];
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    std::size_t next = 0;
    for (const Step& step : program.steps) {
      rank.first_dependence.push_back(next);
      next += step.dependences;
    }
    rank.done.resize(program.steps.size());
    for (int c = 0; c < schedule_.contract.chunks(); ++c) {
      if (schedule_.contract.has_input(r, c)) {
        rank.slots[Slot::of(Space::kInput, static_cast<std::uint32_t>(c)).bits] = {
            c, std::uint64_t{1} << r};
      }
    }
  }

  const std::vector<Step>& steps(int r) const {
    return schedule_.programs[static_cast<std::size_t>(r)].steps;
  }

  bool ready(int r, std::size_t s) const {
    const Rank& rank = ranks_[static_cast<std::size_t>(r)];
    const auto& waits = schedule_.programs[static_cast<std::size_t>(r)].dependences;
    for (std::size_t d = 0; d < steps(r)[s].dependences; ++d) {
      if (!rank.done[waits[rank.first_dependence[s] + d]]) return false;
    }
    return true;
  }

  static Slot shifted(Slot slot, int by) {
    return Slot::of(slot.space(), slot.index() + static_cast<std::uint32_t>(by));
  }

  Value value(int r, Slot slot) const {
    const auto& slots = ranks_[static_cast<std::size_t>(r)].slots;
    const auto found = slots.find(slot.bits);
    return found == slots.end() ? Value{} : found->second;
  }

  void store(int r, Slot slot, Value stored) {
    ranks_[static_cast<std::size_t>(r)].slots[slot.bits] = stored;
  }

  // Local steps and receives of what has arrived take no time: runs all that are ready, repeatedly.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < world_; ++r) {
        for (std::size_t s = 0; s < steps(r).size(); ++s) moved |= run_local(r, s);
      }
      const auto ready_to_read = [this](const Delivery& d) { return ready(d.to, d.step); };
      for (auto next = std::find_if(arrived_.begin(), arrived_.end(), ready_to_read);
           next != arrived_.end();
           next = std::find_if(arrived_.begin(), arrived_.end(), ready_to_read)) {
        deliver(*next);
        arrived_.erase(next);
        moved = true;
      }
    }
  }

  bool run_local(int r, std::size_t s) {
    const Step& step = steps(r)[s];
    auto done = ranks_[static_cast<std::size_t>(r)].done[s];
    if (done || (step.verb != Verb::kCopy && step.verb != Verb::kReduce) || !ready(r, s))
      return false;
    for (int i = 0; i < step.chunks; ++i) {
      const Value source = value(r, shifted(step.source, i));
      const Value target = value(r, shifted(step.target, i));
      store(r, shifted(step.target, i),
            step.verb == Verb::kCopy ? source : Value{target.chunk, target.ranks | source.ranks});
    }
    done = true;
    return true;
  }

  // The step with which the peer receives the n-th message of a stream.
  std::size_t receiver(int from, int to, int lane, int n) const {
    for (std::size_t s = 0; s < steps(to).size(); ++s) {
      const Step& step = steps(to)[s];
      const bool receives = step.verb == Verb::kRecv || step.verb == Verb::kRecvReduce;
      if (receives && step.peer == from && step.lane == lane && n-- == 0) return s;
    }
    return steps(to).size();
  }

  // One round: every rank sends at most one message and receives at most one. What follows at once
  // on a message to the same peer and lane, because a range of chunks had to be cut, belongs to it.
  std::vector<Message> exchange() {
    std::vector<Message> messages;
    std::vector<bool> receiving(static_cast<std::size_t>(world_));
    for (int r = 0; r < world_; ++r) send_from(r, receiving, messages);
    for (const auto& [r, s] : sent_) ranks_[static_cast<std::size_t>(r)].done[s] = true;
    sent_.clear();
    return messages;
  }

  void send_from(int r, std::vector<bool>& receiving, std::vector<Message>& messages) {
    std::map<std::pair<int, int>, int> before;  // per (peer, lane), messages before this step
    const Step* first = nullptr;                // the send that opened this round's message
    for (std::size_t s = 0; s < steps(r).size(); ++s) {
      const Step& step = steps(r)[s];
      if (step.verb != Verb::kSend) continue;
      const int nth = before[{step.peer, step.lane}]++;
      if (ranks_[static_cast<std::size_t>(r)].done[s]) continue;
      const std::size_t at = receiver(r, step.peer, step.lane, nth);
      const bool belongs = first != nullptr && first->peer == step.peer && first->lane == step.lane;
      const bool port_free = first == nullptr ? !receiving[step.peer] : belongs;
      // Ports serve the program's order: a send that cannot go holds up those behind it.
      if (!port_free || !ready(r, s) || at == steps(step.peer).size()) return;
      if (first == nullptr) {
        messages.push_back({r, step.peer, steps(step.peer)[at].verb == Verb::kRecvReduce, {}});
      }
      first = &step;
      receiving[step.peer] = true;
      sent_.emplace_back(r, s);
      arrived_.push_back({step.peer, at, {}});
      for (int i = 0; i < step.chunks; ++i) {
        arrived_.back().values.push_back(value(r, shifted(step.source, i)));
        messages.back().chunks.push_back(arrived_.back().values.back().chunk);
      }
    }
  }

  void deliver(const Delivery& delivery) {
    const Step& step = steps(delivery.to)[delivery.step];
    for (int i = 0; i < step.chunks; ++i) {
      Value arrived = delivery.values[static_cast<std::size_t>(i)];
      if (step.verb == Verb::kRecvReduce)
        arrived.ranks |= value(delivery.to, shifted(step.source, i)).ranks;
      store(delivery.to, shifted(step.target, i), arrived);
    }
    ranks_[static_cast<std::size_t>(delivery.to)].done[delivery.step] = true;
  }

  // A rank's value of a chunk is the one with most contributions, wherever it lies.
  Round snapshot(std::vector<Message> messages) const {
    Round round;
    round.messages = std::move(messages);
    for (const Rank& rank : ranks_) {
      std::vector<std::uint64_t> held(static_cast<std::size_t>(schedule_.contract.chunks()));
      for (const auto& [bits, stored] : rank.slots) {
        if (stored.chunk < 0) continue;
        std::uint64_t& best = held[static_cast<std::size_t>(stored.chunk)];
        if (std::popcount(stored.ranks) > std::popcount(best)) best = stored.ranks;
      }
      round.held.push_back(std::move(held));
    }
    return round;
  }

  const Schedule& schedule_;
  int world_;
  std::vector<Rank> ranks_;
  std::vector<std::pair<int, std::size_t>> sent_;
  std::vector<Delivery> arrived_;  // messages that no step has read yet
  std::vector<Round> rounds_;
};

std::string name_of_chunks(const std::vector<int>& chunks) {
  if (chunks.size() > 1 && chunks.back() - chunks.front() == static_cast<int>(chunks.size()) - 1) {
    return fmt::format("{}..{}", chunks.front(), chunks.back());
  }
  std::vector<std::string> names;
  for (const int chunk : chunks) names.push_back(fmt::format("{}", chunk));
  return join(names, ",");
}

// "*" holds all contributions, "." none, else the ranks that contributed.
std::string name_of_held(std::uint64_t ranks, int world) {
  if (ranks == 0) return ".";
  if (world > 1 && std::popcount(ranks) == world) return "*";
  std::vector<std::string> names;
  for (int r = 0; r < world; ++r) {
    if ((ranks >> r & 1) != 0) names.push_back(fmt::format("{}", r));
  }
  return join(names, world > 10 ? "+" : "");
}

std::vector<std::string> cells_of(const Round& round, int world) {
  std::vector<std::string> cells;
  for (const auto& held : round.held) {
    std::vector<std::string> names;
    for (const std::uint64_t ranks : held) names.push_back(name_of_held(ranks, world));
    cells.push_back(join(names, " "));
  }
  return cells;
}

}  // namespace

std::vector<Round> rounds_of(const Schedule& schedule) { return Replay(schedule).run(); }

std::string draw_rounds(const Schedule& schedule) {
  const int world = schedule.contract.world;
  const std::vector<Round> rounds = rounds_of(schedule);
  std::string text;
  for (std::size_t i = 1; i < rounds.size(); ++i) {
    text += fmt::format("  round {:<2}", i);
    for (const Message& message : rounds[i].messages) {
      text += fmt::format("  {} -c{}{}-> {}", message.from, name_of_chunks(message.chunks),
                          message.reduces ? "+" : "", message.to);
    }
    text += "\n";
  }
  std::size_t width = 0;
  for (const Round& round : rounds) {
    for (const std::string& cell : cells_of(round, world)) width = std::max(width, cell.size());
  }
  width = std::max<std::size_t>(width, 7);
  text += fmt::format("\n  {:<9}", "held");
  for (int r = 0; r < world; ++r) text += fmt::format("  {:<{}}", fmt::format("rank {}", r), width);
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    text += fmt::format("\n  {:<9}", i == 0 ? "start" : fmt::format("round {}", i));
    for (const std::string& cell : cells_of(rounds[i], world))
      text += fmt::format("  {:<{}}", cell, width);
  }
  // Blanks that pad the last column say nothing.
  std::string trimmed;
  for (const std::string_view line : split(text, '\n')) {
    trimmed += std::string(line.substr(0, line.find_last_not_of(' ') + 1)) + "\n";
  }
  return trimmed;
}

}  // namespace sinew::tools
