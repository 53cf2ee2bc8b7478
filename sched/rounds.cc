#include "sched/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/matching.h"
#include "sched/simulate.h"

namespace sinew::sched {
namespace {

// The transfers in the one-port model with one unit of time per message.
std::vector<Transfer> transfers_of(const Schedule& schedule) {
  const Topology topology = homogeneous(schedule.contract.world, {1, 0}, 0);
  SimulateOptions options;
  options.segments = 1;
  Simulation best = simulate(schedule, topology, options);
  options.order = PortOrder::kProgram;
  try {
    Simulation ordered = simulate(schedule, topology, options);
    if (ordered.seconds <= best.seconds) best = std::move(ordered);
  } catch (const Error&) {
    // The programs' orders wait for each other: only the other order makes rounds.
  }
  return std::move(best.transfers);
}

// What a slot holds: the chunk it is about and who contributed.
struct Value {
  int chunk = -1;
  std::uint64_t ranks = 0;
};

class Replay {
 public:
  explicit Replay(const Schedule& schedule)
      : schedule_(schedule),
        world_(schedule.contract.world),
        matching_(match(schedule)),
        transfers_(transfers_of(schedule)) {
    CHECK_LE(world_, 64);
    ranks_.resize(static_cast<std::size_t>(world_));
    for (int r = 0; r < world_; ++r) begin(r);
  }

  std::vector<Round> run() {
    settle();
    rounds_.push_back(snapshot({}));
    for (std::vector<RoundMessage> sent = exchange(); !sent.empty(); sent = exchange()) {
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
    const Program& program = schedule_.programs[static_cast<std::size_t>(r)];
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

  // The messages whose transfer begins in this round, as simulated.
  std::vector<RoundMessage> exchange() {
    const double round = static_cast<double>(rounds_.size()) - 1;
    std::vector<RoundMessage> messages;
    for (const Transfer& transfer : transfers_) {
      if (transfer.begin_s == round) messages.push_back(send(transfer));
    }
    std::sort(messages.begin(), messages.end(), [](const RoundMessage& a, const RoundMessage& b) {
      return std::tie(a.from, a.to) < std::tie(b.from, b.to);
    });
    return messages;
  }

  // All parts of one message.
  RoundMessage send(const Transfer& transfer) {
    const auto rank = static_cast<std::size_t>(transfer.from);
    const std::vector<Step>& sends = steps(transfer.from);
    RoundMessage message{transfer.from, transfer.to, false, {}};
    for (std::size_t s = transfer.step; s == transfer.step || (s < sends.size() && sends[s].joined);
         ++s) {
      const LanePosition& position = matching_.positions[rank][s];
      const Lane& lane = matching_.lanes[static_cast<std::size_t>(position.lane)];
      const std::uint32_t receive = lane.receives[position.index];
      message.reduces = steps(transfer.to)[receive].verb == Verb::kRecvReduce;
      Delivery delivery{transfer.to, receive, {}};
      for (int i = 0; i < sends[s].chunks; ++i) {
        delivery.values.push_back(value(transfer.from, shifted(sends[s].source, i)));
        message.chunks.push_back(delivery.values.back().chunk);
      }
      arrived_.push_back(std::move(delivery));
      ranks_[rank].done[s] = true;
    }
    return message;
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
  Round snapshot(std::vector<RoundMessage> messages) const {
    Round round;
    round.messages = std::move(messages);
    for (const Rank& rank : ranks_) {
      std::vector<std::uint64_t> held(static_cast<std::size_t>(schedule_.contract.chunks()));
      for (const auto& [bits, stored] : rank.slots) {
        if (stored.chunk < 0) continue;
        std::uint64_t& best = held[static_cast<std::size_t>(stored.chunk)];
        if (schedule_.contract.op == Collective::kAllToAll) {
          best |= stored.ranks;
        } else if (std::popcount(stored.ranks) > std::popcount(best)) {
          best = stored.ranks;
        }
      }
      round.held.push_back(std::move(held));
    }
    return round;
  }

  const Schedule& schedule_;
  int world_;
  std::vector<Rank> ranks_;
  Matching matching_;
  std::vector<Transfer> transfers_;
  std::vector<Delivery> arrived_;  // messages that no step has read yet
  std::vector<Round> rounds_;
};

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

std::string name_of_chunks(const std::vector<int>& chunks) {
  if (chunks.size() > 1 && chunks.back() - chunks.front() == static_cast<int>(chunks.size()) - 1) {
    return fmt::format("{}..{}", chunks.front(), chunks.back());
  }
  std::vector<std::string> names;
  for (const int chunk : chunks) names.push_back(fmt::format("{}", chunk));
  return join(names, ",");
}

std::string name_of_held(std::uint64_t ranks, int world) {
  if (ranks == 0) return ".";
  if (world > 1 && std::popcount(ranks) == world) return "*";
  std::vector<std::string> names;
  for (int r = 0; r < world; ++r) {
    if ((ranks >> r & 1) != 0) names.push_back(fmt::format("{}", r));
  }
  return join(names, world > 10 ? "+" : "");
}

std::vector<Round> rounds_of(const Schedule& schedule) { return Replay(schedule).run(); }

std::string draw_rounds(const Schedule& schedule) {
  const int world = schedule.contract.world;
  const std::vector<Round> rounds = rounds_of(schedule);
  std::string text;
  for (std::size_t i = 1; i < rounds.size(); ++i) {
    text += fmt::format("  round {:<2}", i);
    for (const RoundMessage& message : rounds[i].messages) {
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

}  // namespace sinew::sched
