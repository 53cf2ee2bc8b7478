#include "comm/rendezvous.h"

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "sched/base/check.h"

namespace sinew::comm {

namespace {

struct Ref {
  std::uint32_t rank;
  std::uint32_t step;
};

class Run {
 public:
  explicit Run(const sched::Schedule& schedule) : schedule_(schedule) {
    for (const sched::Program& program : schedule.programs) {
      done_.emplace_back(program.steps.size(), false);
      partner_.emplace_back(program.steps.size(), Ref{});
      first_dependence_.emplace_back();
      std::uint32_t next = 0;
      for (const sched::Step& step : program.steps) {
        first_dependence_.back().push_back(next);
        next += step.dependences;
      }
    }
    match();
  }

  bool completes() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t rank = 0; rank < done_.size(); ++rank) moved |= sweep(rank);
    }
    for (const std::vector<bool>& done : done_) {
      for (const bool step : done) {
        if (!step) return false;
      }
    }
    return true;
  }

 private:
  // The i-th send of a lane meets its i-th receive.
  void match() {
    using Lane = std::tuple<std::uint32_t, std::uint32_t, std::uint8_t>;  // from, to, lane
    std::map<Lane, std::vector<Ref>> sends;
    for (std::uint32_t rank = 0; rank < done_.size(); ++rank) {
      each_step(rank, [&](std::uint32_t i, const sched::Step& step) {
        if (step.verb == sched::Verb::kSend)
          sends[{rank, step.peer, step.lane}].push_back({rank, i});
      });
    }
    std::map<Lane, std::size_t> received;
    for (std::uint32_t rank = 0; rank < done_.size(); ++rank) {
      each_step(rank, [&](std::uint32_t i, const sched::Step& step) {
        if (step.verb != sched::Verb::kRecv && step.verb != sched::Verb::kRecvReduce) return;
        const Lane lane{step.peer, rank, step.lane};
        const std::size_t index = received[lane]++;
        CHECK_LT(index, sends[lane].size());
        const Ref send = sends[lane][index];
        partner_[rank][i] = send;
        partner_[send.rank][send.step] = {rank, i};
      });
    }
  }

  template <typename Function>
  void each_step(std::uint32_t rank, const Function& function) {
    const std::vector<sched::Step>& steps = schedule_.programs[rank].steps;
    for (std::uint32_t i = 0; i < steps.size(); ++i) function(i, steps[i]);
  }

  bool sweep(std::uint32_t rank) {
    bool moved = false;
    each_step(rank, [&](std::uint32_t i, const sched::Step& step) {
      if (done_[rank][i] || !may_start({rank, i})) return;
      if (step.verb != sched::Verb::kCopy && step.verb != sched::Verb::kReduce) {
        const Ref other = partner_[rank][i];
        if (!may_start(other)) return;
        done_[other.rank][other.step] = true;
      }
      done_[rank][i] = true;
      moved = true;
    });
    return moved;
  }

  [[nodiscard]] bool may_start(Ref ref) const {
    const sched::Program& program = schedule_.programs[ref.rank];
    const std::uint32_t first = first_dependence_[ref.rank][ref.step];
    for (std::uint32_t i = 0; i < program.steps[ref.step].dependences; ++i) {
      if (!done_[ref.rank][program.dependences[first + i]]) return false;
    }
    return true;
  }

  const sched::Schedule& schedule_;
  std::vector<std::vector<bool>> done_;
  std::vector<std::vector<Ref>> partner_;
  std::vector<std::vector<std::uint32_t>> first_dependence_;
};

}  // namespace

bool completes_unbuffered(const sched::Schedule& schedule) { return Run(schedule).completes(); }

}  // namespace sinew::comm
