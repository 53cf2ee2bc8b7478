#include "comm/rendezvous.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "sched/base/check.h"

namespace sinew::comm {

namespace {

using sched::Verb;

struct Ref {
  std::uint32_t rank;
  std::uint32_t step;
};

class Run {
 public:
  Run(const sched::Schedule& schedule, const std::vector<Chains>& chains, Buffers buffers)
      : schedule_(schedule), chains_(chains), buffers_(buffers) {
    for (const sched::Program& program : schedule.programs) {
      done_.emplace_back(program.steps.size(), false);
      partner_.emplace_back(program.steps.size(), Ref{});
      before_.emplace_back(program.steps.size(), Ref{0, kNone});
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
      for (std::uint32_t rank = 0; rank < done_.size(); ++rank) {
        for (const std::vector<std::uint32_t>& chain : chains_[rank])
          moved |= try_chain(rank, chain);
      }
    }
    return std::all_of(done_.begin(), done_.end(), [](const std::vector<bool>& steps) {
      return std::all_of(steps.begin(), steps.end(), [](bool done) { return done; });
    });
  }

 private:
  using Lane = std::tuple<std::uint32_t, std::uint32_t, std::uint8_t>;  // from, to, lane

  // The i-th send of a lane meets its i-th receive.
  void match() {
    std::map<Lane, std::vector<Ref>> sends;
    std::map<Lane, std::size_t> received;
    for (std::uint32_t rank = 0; rank < done_.size(); ++rank) {
      const std::vector<sched::Step>& steps = schedule_.programs[rank].steps;
      for (std::uint32_t i = 0; i < steps.size(); ++i) {
        if (steps[i].verb == Verb::kSend)
          sends[{rank, steps[i].peer, steps[i].lane}].push_back({rank, i});
      }
    }
    for (std::uint32_t rank = 0; rank < done_.size(); ++rank) {
      const std::vector<sched::Step>& steps = schedule_.programs[rank].steps;
      for (std::uint32_t i = 0; i < steps.size(); ++i) {
        if (steps[i].verb != Verb::kRecv && steps[i].verb != Verb::kRecvReduce) continue;
        const Lane lane{steps[i].peer, rank, steps[i].lane};
        const std::size_t index = received[lane]++;
        CHECK_LT(index, sends[lane].size());
        partner_[rank][i] = sends[lane][index];
        if (index + 1 == sends[lane].size()) continue;
        const Ref next = sends[lane][index + 1];
        before_[next.rank][next.step] = {rank, i};
      }
    }
  }

  // A chain happens when all it waits for has, and every message it takes is being sent or was.
  // Without buffers sends happen with the chain that takes them.
  bool try_chain(std::uint32_t rank, const std::vector<std::uint32_t>& chain) {
    const std::vector<sched::Step>& steps = schedule_.programs[rank].steps;
    if (done_[rank][chain.back()]) return false;
    if (steps[chain.back()].verb == Verb::kSend) return try_send({rank, chain.back()});
    for (const std::uint32_t i : chain) {
      if (!may_start({rank, i}, chain)) return false;
      if (!receives(steps[i].verb)) continue;
      const Ref sent = partner_[rank][i];
      if (!done_[sent.rank][sent.step] && !may_start(sent, {})) return false;
    }
    for (const std::uint32_t i : chain) {
      done_[rank][i] = true;
      if (receives(steps[i].verb)) done_[partner_[rank][i].rank][partner_[rank][i].step] = true;
    }
    return true;
  }

  // Into the lane's buffer, once the message before it was taken.
  bool try_send(Ref send) {
    if (buffers_ == Buffers::kNone || !may_start(send, {})) return false;
    const Ref taken = before_[send.rank][send.step];
    if (taken.step != kNone && !done_[taken.rank][taken.step]) return false;
    done_[send.rank][send.step] = true;
    return true;
  }

  static bool receives(Verb verb) { return verb == Verb::kRecv || verb == Verb::kRecvReduce; }

  // chain: steps that happen together with it.
  [[nodiscard]] bool may_start(Ref ref, const std::vector<std::uint32_t>& chain) const {
    const sched::Program& program = schedule_.programs[ref.rank];
    const std::uint32_t first = first_dependence_[ref.rank][ref.step];
    for (std::uint32_t i = 0; i < program.steps[ref.step].dependences; ++i) {
      const std::uint32_t earlier = program.dependences[first + i];
      if (!done_[ref.rank][earlier] &&
          std::find(chain.begin(), chain.end(), earlier) == chain.end())
        return false;
    }
    return true;
  }

  const sched::Schedule& schedule_;
  static constexpr std::uint32_t kNone = ~0U;
  const std::vector<Chains>& chains_;
  Buffers buffers_;
  std::vector<std::vector<bool>> done_;
  std::vector<std::vector<Ref>> partner_;  // of a receive: its send
  std::vector<std::vector<Ref>> before_;   // of a send: what receives the lane's message before
  std::vector<std::vector<std::uint32_t>> first_dependence_;
};

}  // namespace

bool completes(const sched::Schedule& schedule, const std::vector<Chains>& chains,
               Buffers buffers) {
  CHECK_EQ(schedule.programs.size(), chains.size());
  return Run(schedule, chains, buffers).completes();
}

}  // namespace sinew::comm
