// Every row of the table, run by the plainest possible interpreter on numbers: an independent check
// beside the symbolic proof. Chunks are single numbers; messages are queues; ranks take turns.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "sched/collective/registry.h"

namespace sinew::sched {
namespace {

// The input of a rank for a chunk, chosen so that sums name their terms: one decimal-free power per
// rank.
double input_of(int rank, int chunk) { return (rank + 1) * 1000.0 + chunk; }

class Interpreter {
 public:
  explicit Interpreter(const Schedule& schedule) : schedule_(schedule) {
    const auto world = static_cast<std::size_t>(schedule.contract.world);
    const auto chunks = static_cast<std::size_t>(schedule.contract.chunks());
    for (std::size_t rank = 0; rank < world; ++rank) {
      std::vector<double> input(chunks, -1);
      for (std::size_t c = 0; c < chunks; ++c) {
        if (schedule.contract.has_input(static_cast<int>(rank), static_cast<int>(c))) {
          input[c] = input_of(static_cast<int>(rank), static_cast<int>(c));
        }
      }
      // In place: Input and Output are the same numbers.
      places_.push_back(
          {input, std::vector<double>(schedule.programs[rank].scratch_chunk.size(), -1)});
      next_.push_back(0);
    }
  }

  // Runs until no rank can go on; true when all programs are finished.
  bool run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) {
        while (next_[rank] < schedule_.programs[rank].steps.size() && step(static_cast<int>(rank)))
          moved = true;
      }
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] != schedule_.programs[rank].steps.size()) return false;
    }
    return true;
  }

  [[nodiscard]] double output(int rank, int chunk) const {
    return places_[static_cast<std::size_t>(rank)][0][static_cast<std::size_t>(chunk)];
  }

 private:
  double& at(int rank, Slot slot, int offset) {
    return places_[static_cast<std::size_t>(rank)][slot.space() == Space::kScratch ? 1 : 0].at(
        slot.index() + static_cast<std::size_t>(offset));
  }

  bool step(int rank) {
    const Step& s = schedule_.programs[static_cast<std::size_t>(rank)]
                        .steps[next_[static_cast<std::size_t>(rank)]];
    std::vector<double> message;
    if (s.verb == Verb::kRecv || s.verb == Verb::kRecvReduce) {
      auto& lane = lanes_[{s.peer, rank, s.lane}];
      if (lane.empty()) return false;
      message = lane.front();
      lane.pop_front();
      EXPECT_EQ(message.size(), s.chunks);
    }
    for (int i = 0; i < s.chunks; ++i) {
      switch (s.verb) {
        case Verb::kSend:
          message.push_back(at(rank, s.source, i));
          break;
        case Verb::kRecv:
          at(rank, s.target, i) = message[static_cast<std::size_t>(i)];
          break;
        case Verb::kRecvReduce:
          at(rank, s.target, i) = at(rank, s.source, i) + message[static_cast<std::size_t>(i)];
          break;
        case Verb::kCopy:
          at(rank, s.target, i) = at(rank, s.source, i);
          break;
        case Verb::kReduce:
          at(rank, s.target, i) += at(rank, s.source, i);
          break;
      }
    }
    if (s.verb == Verb::kSend) lanes_[{rank, s.peer, s.lane}].push_back(message);
    ++next_[static_cast<std::size_t>(rank)];
    return true;
  }

  const Schedule& schedule_;
  std::vector<std::vector<std::vector<double>>> places_;  // [rank][value, scratch]
  std::vector<std::size_t> next_;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<double>>> lanes_;
};

double expected(const Contract& contract, int chunk) {
  if (!contract.reduces())
    return input_of(contract.rooted() ? contract.root : chunk / contract.chunks_per_block, chunk);
  double sum = 0;
  for (int rank = 0; rank < contract.world; ++rank) sum += input_of(rank, chunk);
  return sum;
}

TEST(Execute, EveryRowGivesTheContractsNumbersInPlaceForWorlds1To33) {
  for (const Algorithm& row : algorithms()) {
    for (int world = 1; world <= 33; ++world) {
      Params params;
      params.world = world;
      params.root = (world * 7 + 3) % world;
      if (!row.refuse(params).empty()) continue;
      const Schedule schedule = generate(row, params);
      Interpreter interpreter(schedule);
      ASSERT_TRUE(interpreter.run()) << name_of(row.op) << "/" << row.name << " world " << world;
      for (int rank = 0; rank < world; ++rank) {
        for (int chunk = 0; chunk < schedule.contract.chunks(); ++chunk) {
          if (!schedule.contract.has_output(rank, chunk)) continue;
          ASSERT_EQ(interpreter.output(rank, chunk), expected(schedule.contract, chunk))
              << name_of(row.op) << "/" << row.name << " world " << world << " rank " << rank
              << " chunk " << chunk;
        }
      }
    }
  }
}

TEST(ScheduleText, RoundTripsForEveryRow) {
  for (const Algorithm& row : algorithms()) {
    for (int world : {1, 2, 3, 4, 8, 11}) {
      Params params;
      params.world = world;
      if (!row.refuse(params).empty()) continue;
      const Schedule schedule = generate(row, params);
      EXPECT_EQ(parse_schedule(print(schedule)), schedule) << print(schedule);
    }
  }
}

TEST(Generate, KeepingOneRankGivesThatRanksProgram) {
  for (const Algorithm& row : algorithms()) {
    Params params;
    params.world = 8;
    const Schedule all = generate(row, params);
    for (int rank = 0; rank < 8; ++rank) {
      const Schedule one = generate(row, params, rank);
      EXPECT_EQ(one.programs[static_cast<std::size_t>(rank)],
                all.programs[static_cast<std::size_t>(rank)]);
    }
  }
}

}  // namespace
}  // namespace sinew::sched
