#include "sched/places.h"

#include <algorithm>
#include <limits>

#include "sched/base/error.h"

namespace sinew::sched {

namespace {

class Rewriter {
 public:
  Rewriter(const Contract& contract, const Program& program)
      : contract_(contract),
        log_(static_cast<std::size_t>(contract.chunks()) + program.scratch_chunk.size()) {}

  // What step `at` waits for, in increasing order.
  const std::vector<std::uint32_t>& waits_of(const Step& step, std::uint32_t at) {
    waits_.clear();
    for (std::uint32_t i = 0; i < step.chunks; ++i) {
      if (reads_source(step)) add(log_.before_read(place(step.source, i)));
      if (reads_target(step)) add(log_.before_read(place(step.target, i)));
      if (writes_target(step)) add(log_.before_write(place(step.target, i)));
    }
    for (std::uint32_t i = 0; i < step.chunks; ++i) {
      if (reads_source(step)) log_.note_read(place(step.source, i), at);
      if (writes_target(step)) log_.note_write(place(step.target, i), at);
    }
    std::sort(waits_.begin(), waits_.end());
    waits_.erase(std::unique(waits_.begin(), waits_.end()), waits_.end());
    return waits_;
  }

 private:
  void add(std::span<const std::uint32_t> steps) {
    waits_.insert(waits_.end(), steps.begin(), steps.end());
  }
  [[nodiscard]] std::size_t place(Slot slot, std::uint32_t i) const {
    return place_of(contract_, slot) + i;
  }

  const Contract& contract_;
  PlaceLog log_;
  std::vector<std::uint32_t> waits_;
};

}  // namespace

Schedule with_direct_dependences(const Schedule& schedule) {
  Schedule result = schedule;
  for (Program& program : result.programs) {
    if (program.steps.empty()) continue;
    Rewriter rewriter(schedule.contract, program);
    program.dependences.clear();
    for (std::uint32_t at = 0; at < program.steps.size(); ++at) {
      const std::vector<std::uint32_t>& waits = rewriter.waits_of(program.steps[at], at);
      if (waits.size() > std::numeric_limits<std::uint16_t>::max()) {
        throw UsageError("schedule '" + schedule.name + "': a step waits for " +
                         std::to_string(waits.size()) + " others; at most 65535 can be counted");
      }
      program.steps[at].dependences = static_cast<std::uint16_t>(waits.size());
      program.dependences.insert(program.dependences.end(), waits.begin(), waits.end());
    }
  }
  return result;
}

}  // namespace sinew::sched
