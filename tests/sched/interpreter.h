// Interpreter: runs a schedule on numbers in the plainest possible way: an oracle that shares no
// code with verify, simulate or the executor. Chunks are single numbers that wrap around; messages
// are queues; at each turn any step that may begin does, picked at random. A barrier's token is a
// set of ranks, a bit each, that may be told twice: worlds up to 64. A step changes what may begin
// on its own rank and, if it sends, on its peer; nothing else is looked at again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "sched/schedule.h"

namespace sinew::sched {

enum class Placement : std::uint8_t { kInPlace, kOutOfPlace };

class Interpreter {
 public:
  using Value = std::uint64_t;

  Interpreter(const Schedule& schedule, Placement placement, std::uint32_t seed)
      : schedule_(schedule), random_(seed) {
    const auto chunks = static_cast<std::size_t>(schedule.contract.chunks());
    for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
      Memory memory;
      memory.output.assign(chunks, kGarbage);
      memory.scratch.assign(schedule.programs[rank].scratch_chunk.size(), kGarbage);
      std::vector<Value>& input =
          placement == Placement::kInPlace ? memory.output : memory.separate_input;
      input.resize(chunks, kGarbage);
      for (std::size_t c = 0; c < chunks; ++c) {
        const auto r = static_cast<int>(rank);
        if (schedule.contract.has_input(r, static_cast<int>(c))) {
          input[c] = input_of(r, static_cast<int>(c));
        }
      }
      memory.in_place = placement == Placement::kInPlace;
      memories_.push_back(std::move(memory));
      done_.emplace_back(schedule.programs[rank].steps.size(), false);
      first_open_.push_back(0);
    }
    index_steps();
  }

  // Runs until no step can go on; true when all are done.
  bool run() {
    std::vector<std::vector<std::size_t>> ready;  // [rank]: steps that may begin
    for (std::size_t rank = 0; rank < done_.size(); ++rank) ready.push_back(ready_steps(rank));
    for (std::size_t left = total_; left > 0; --left) {
      std::size_t count = 0;
      for (const auto& steps : ready) count += steps.size();
      if (count == 0) return false;
      std::size_t chosen = random_() % count;
      std::size_t rank = 0;
      while (chosen >= ready[rank].size()) chosen -= ready[rank++].size();
      const std::size_t step = ready[rank][chosen];
      execute({rank, step});
      ready[rank] = ready_steps(rank);
      const Step& s = schedule_.programs[rank].steps[step];
      if (s.verb == Verb::kSend) ready[s.peer] = ready_steps(s.peer);
    }
    return true;
  }

  [[nodiscard]] Value output(int rank, int chunk) const {
    return memories_[static_cast<std::size_t>(rank)].output[static_cast<std::size_t>(chunk)];
  }

  // Whether every output slot holds what the contract says.
  [[nodiscard]] bool right() const {
    const Contract& contract = schedule_.contract;
    for (int rank = 0; rank < contract.world; ++rank) {
      for (int chunk = 0; chunk < contract.chunks(); ++chunk) {
        if (contract.has_output(rank, chunk) && output(rank, chunk) != expected(rank, chunk))
          return false;
      }
    }
    return true;
  }

  // Sums of inputs name their terms: a missing, repeated or foreign one changes the sum, but for a
  // chance of 2^-64.
  [[nodiscard]] Value input_of(int rank, int chunk) const {
    if (schedule_.contract.op == Collective::kBarrier) return Value{1} << rank;
    Value x = (static_cast<Value>(rank) << 32) + static_cast<Value>(chunk) + 1;
    x *= 0x9e3779b97f4a7c15U;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9U;
    return x ^ (x >> 32);
  }

  [[nodiscard]] Value expected(int rank, int chunk) const {
    const Contract& contract = schedule_.contract;
    const int block = chunk / contract.chunks_per_block;
    if (contract.op == Collective::kAllToAll)
      return input_of(block, chunk + (rank - block) * contract.chunks_per_block);
    if (!contract.reduces()) {
      const bool from_root = contract.rooted() && contract.op != Collective::kGather;
      return input_of(from_root ? contract.root : block, chunk);
    }
    Value sum = 0;
    for (int from = 0; from < contract.world; ++from) sum = combine(sum, input_of(from, chunk));
    return sum;
  }

  [[nodiscard]] Value combine(Value a, Value b) const {
    return schedule_.contract.op == Collective::kBarrier ? a | b : a + b;
  }

 private:
  static constexpr Value kGarbage = 0xdeadbeefcafef00dU;

  struct Memory {
    std::vector<Value> output;
    std::vector<Value> separate_input;
    std::vector<Value> scratch;
    bool in_place = true;
  };
  struct Place {
    std::size_t rank;
    std::size_t step;
  };
  using LaneKey = std::tuple<std::size_t, std::size_t, int>;

  void index_steps() {
    for (const Program& program : schedule_.programs) {
      total_ += program.steps.size();
      std::vector<std::size_t> first = {0};
      for (const Step& step : program.steps) first.push_back(first.back() + step.dependences);
      first_dependence_.push_back(std::move(first));
    }
  }

  static bool receives(Verb verb) { return verb == Verb::kRecv || verb == Verb::kRecvReduce; }

  [[nodiscard]] std::vector<std::size_t> ready_steps(std::size_t rank) const {
    std::vector<std::size_t> ready;
    // A message waits for those before it in its lane, at this end.
    std::vector<std::tuple<bool, int, int>> blocked;
    const Program& program = schedule_.programs[rank];
    for (std::size_t i = first_open_[rank]; i < program.steps.size(); ++i) {
      if (done_[rank][i]) continue;
      const Step& s = program.steps[i];
      bool may = true;
      for (std::size_t d = first_dependence_[rank][i]; d < first_dependence_[rank][i + 1]; ++d) {
        may = may && done_[rank][program.dependences[d]];
      }
      if (s.verb == Verb::kSend || receives(s.verb)) {
        const std::tuple<bool, int, int> stream = {s.verb == Verb::kSend, s.peer, s.lane};
        may = may && std::find(blocked.begin(), blocked.end(), stream) == blocked.end();
        blocked.push_back(stream);
        if (may && receives(s.verb)) {
          const auto lane = lanes_.find({s.peer, rank, s.lane});
          may = lane != lanes_.end() && !lane->second.empty();
        }
      }
      if (may) ready.push_back(i);
    }
    return ready;
  }

  Value& at(std::size_t rank, Slot slot, std::size_t offset) {
    Memory& memory = memories_[rank];
    std::vector<Value>& space = slot.space() == Space::kScratch ? memory.scratch
                                : slot.space() == Space::kInput && !memory.in_place
                                    ? memory.separate_input
                                    : memory.output;
    return space.at(slot.index() + offset);
  }

  void execute(Place place) {
    const Step& s = schedule_.programs[place.rank].steps[place.step];
    std::vector<Value> message;
    if (receives(s.verb)) {
      auto& lane = lanes_[{s.peer, place.rank, s.lane}];
      message = lane.front();
      lane.pop_front();
      message.resize(s.chunks, kGarbage);
    }
    for (std::size_t i = 0; i < s.chunks; ++i) {
      switch (s.verb) {
        case Verb::kSend:
          message.push_back(at(place.rank, s.source, i));
          break;
        case Verb::kRecv:
          at(place.rank, s.target, i) = message[i];
          break;
        case Verb::kRecvReduce:
          at(place.rank, s.target, i) = combine(at(place.rank, s.source, i), message[i]);
          break;
        case Verb::kCopy:
          at(place.rank, s.target, i) = at(place.rank, s.source, i);
          break;
        case Verb::kReduce:
          at(place.rank, s.target, i) =
              combine(at(place.rank, s.target, i), at(place.rank, s.source, i));
          break;
      }
    }
    if (s.verb == Verb::kSend) lanes_[{place.rank, s.peer, s.lane}].push_back(message);
    std::vector<bool>& done = done_[place.rank];
    done[place.step] = true;
    std::size_t& open = first_open_[place.rank];
    while (open < done.size() && done[open]) ++open;
  }

  const Schedule& schedule_;
  std::mt19937 random_;
  std::vector<Memory> memories_;         // [rank]
  std::vector<std::vector<bool>> done_;  // [rank][step]
  std::vector<std::size_t> first_open_;  // [rank]: all steps before it are done
  std::vector<std::vector<std::size_t>> first_dependence_;
  std::size_t total_ = 0;
  std::map<LaneKey, std::deque<std::vector<Value>>> lanes_;
};

}  // namespace sinew::sched
