#include "comm/fuse.h"

#include <algorithm>
#include <utility>

namespace sinew::comm {

namespace {

using sched::Step;
using sched::Verb;

class Fuser {
 public:
  explicit Fuser(const sched::Program& program) : program_(program), chain_(program.steps.size()) {
    std::size_t next = 0;
    dependents_.resize(program.steps.size());
    for (std::uint32_t i = 0; i < program.steps.size(); ++i) {
      for (std::uint16_t d = 0; d < program.steps[i].dependences; ++d) {
        dependents_[program.dependences[next++]].push_back(i);
      }
    }
  }

  std::vector<std::vector<std::uint32_t>> run() {
    for (std::uint32_t i = 0; i < program_.steps.size(); ++i) {
      chain_[i] = {i};
      const std::int64_t earlier = continues(i);
      if (earlier < 0) continue;
      std::vector<std::uint32_t>& front = chain_[static_cast<std::size_t>(earlier)];
      front.push_back(i);
      chain_[i] = std::move(front);
      front.clear();
    }
    std::vector<std::vector<std::uint32_t>> chains;
    for (std::vector<std::uint32_t>& chain : chain_) {
      if (!chain.empty()) chains.push_back(std::move(chain));
    }
    return chains;
  }

 private:
  // The step whose result step i takes as its first operand and is the only one to touch; -1: there
  // is none, or both may not be one step.
  [[nodiscard]] std::int64_t continues(std::uint32_t i) const {
    const Step& step = program_.steps[i];
    if (step.verb != Verb::kRecvReduce && step.verb != Verb::kReduce) return -1;
    const sched::Slot first = step.verb == Verb::kRecvReduce ? step.source : step.target;
    for (std::int64_t earlier = std::int64_t{i} - 1; earlier >= 0; --earlier) {
      const Step& before = program_.steps[static_cast<std::size_t>(earlier)];
      if (before.verb == Verb::kSend || before.target != first || before.chunks != step.chunks)
        continue;
      return may_join(static_cast<std::uint32_t>(earlier), i) ? earlier : -1;
    }
    return -1;
  }

  [[nodiscard]] bool may_join(std::uint32_t earlier, std::uint32_t i) const {
    const Step& before = program_.steps[earlier];
    if (before.verb == Verb::kCopy || before.verb == Verb::kSend) return false;
    // An intermediate value in an output may be what a later step needs, or what in place was read
    // before.
    if (dependents_[earlier].size() != 1 || dependents_[earlier][0] != i) return false;
    // All messages must be at hand at once: they cannot be when one queues behind another, or
    // behind a message that is received in between.
    for (std::uint32_t later = earlier + 1; later <= i; ++later) {
      if (queues_behind(chain_[earlier], program_.steps[later])) return false;
    }
    return true;
  }

  [[nodiscard]] bool queues_behind(const std::vector<std::uint32_t>& members,
                                   const Step& step) const {
    if (!receives(step.verb)) return false;
    return std::any_of(members.begin(), members.end(), [&](std::uint32_t member) {
      const Step& other = program_.steps[member];
      return receives(other.verb) && other.peer == step.peer && other.lane == step.lane;
    });
  }

  static bool receives(Verb verb) { return verb == Verb::kRecv || verb == Verb::kRecvReduce; }

  const sched::Program& program_;
  std::vector<std::vector<std::uint32_t>> dependents_;
  std::vector<std::vector<std::uint32_t>>
      chain_;  // by last member; empty where a longer one took it over
};

}  // namespace

std::vector<std::vector<std::uint32_t>> fuse(const sched::Program& program) {
  return Fuser(program).run();
}

std::vector<std::vector<std::uint32_t>> keep_apart(const sched::Program& program) {
  std::vector<std::vector<std::uint32_t>> chains;
  for (std::uint32_t i = 0; i < program.steps.size(); ++i) chains.push_back({i});
  return chains;
}

}  // namespace sinew::comm
