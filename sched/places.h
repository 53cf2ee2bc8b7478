// Places: what steps read and write, and the dependences that follow from it.
//
// Never does: judge a schedule (verify.h) or write one (builder.h).
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sched/schedule.h"

namespace sinew::sched {

// Input[c] and Output[c] are one place, scratch slots lie behind them.
[[nodiscard]] inline std::size_t place_of(const Contract& contract, Slot slot) {
  return (slot.space() == Space::kScratch ? static_cast<std::size_t>(contract.chunks()) : 0) +
         slot.index();
}

[[nodiscard]] inline bool reads_source(const Step& step) { return step.verb != Verb::kRecv; }
[[nodiscard]] inline bool reads_target(const Step& step) { return step.verb == Verb::kReduce; }
[[nodiscard]] inline bool writes_target(const Step& step) { return step.verb != Verb::kSend; }

// Who wrote each place last, and who has read it since, as the steps of one program are noted in
// their order. Kept between programs (reset) so that nothing is allocated per step.
class PlaceLog {
 public:
  explicit PlaceLog(std::size_t places) : writer_(places, kNobody), readers_(places) {}
  void reset() {
    for (const std::size_t place : touched_) {
      writer_[place] = kNobody;
      readers_[place].clear();
    }
    touched_.clear();
  }

  // The steps that a read of the place must follow: its last writer, if it has one.
  [[nodiscard]] std::span<const std::uint32_t> before_read(std::size_t place) const {
    return {&writer_[place], writer_[place] == kNobody ? std::size_t{0} : std::size_t{1}};
  }
  // Those that a write must follow: the readers since, who follow the writer themselves, or it.
  [[nodiscard]] std::span<const std::uint32_t> before_write(std::size_t place) const {
    return readers_[place].empty() ? before_read(place) : readers_[place];
  }
  void note_read(std::size_t place, std::uint32_t step) {
    readers_[place].push_back(step);
    touched_.push_back(place);
  }
  void note_write(std::size_t place, std::uint32_t step) {
    writer_[place] = step;
    readers_[place].clear();
    touched_.push_back(place);
  }

 private:
  static constexpr std::uint32_t kNobody = ~0U;
  std::vector<std::uint32_t> writer_;
  std::vector<std::vector<std::uint32_t>> readers_;
  std::vector<std::size_t> touched_;
};

// The same schedule with other dependences: each step waits for exactly those that it shares a
// place with, one of the two writing; of several that follow each other in one place, for the last.
// A text file may order steps over third ones, and steps that share nothing; an executor that goes
// byte by byte, and so waits place by place, needs those that share one.
//
// Requires a proved schedule, whose dependences order all steps that share a place. So the new ones
// order nothing that was not ordered: what was free of deadlock and races stays so.
// Throws UsageError when a step has more dependences than a Step can count.
[[nodiscard]] Schedule with_direct_dependences(const Schedule& schedule);

}  // namespace sinew::sched
