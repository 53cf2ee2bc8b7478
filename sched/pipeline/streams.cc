#include "sched/pipeline/streams.h"

#include <map>
#include <tuple>

#include "sched/base/check.h"

namespace sinew::sched {

namespace {

// Which message of which stream an action is an end of.
struct End {
  int stream = -1;  // -1: a computation
  std::size_t message = 0;
};

class Runner {
 public:
  Runner(const PipeSchedule& schedule, const std::vector<PipeStream>& streams, std::size_t credits)
      : schedule_(schedule),
        streams_(streams),
        credits_(credits),
        next_(schedule.actions.size(), 0) {
    for (const auto& program : schedule.actions) ends_.emplace_back(program.size());
    for (std::size_t s = 0; s < streams.size(); ++s) {
      CHECK_EQ(streams[s].sends.size(), streams[s].receives.size());
      for (std::size_t i = 0; i < streams[s].sends.size(); ++i) {
        for (const PipePlace& place : {streams[s].sends[i], streams[s].receives[i]}) {
          ends_[static_cast<std::size_t>(place.rank)][place.index] = {static_cast<int>(s), i};
        }
      }
    }
  }

  // A rank is looked at again whenever its peer passes or arrives at an end of a message they
  // share; both happen at most once per action, which bounds the loop.
  std::vector<std::size_t> run() {
    std::vector<std::size_t> arrived(next_.size(), static_cast<std::size_t>(-1));
    std::vector<int> awake;
    for (int rank = schedule_.ranks - 1; rank >= 0; --rank) awake.push_back(rank);
    while (!awake.empty()) {
      const auto rank = static_cast<std::size_t>(awake.back());
      awake.pop_back();
      const std::size_t size = schedule_.actions[rank].size();
      for (; next_[rank] < size; ++next_[rank]) {
        if (!may_pass(rank)) break;
        if (ends_[rank][next_[rank]].stream >= 0) awake.push_back(peer_of(rank));
      }
      if (next_[rank] < size && arrived[rank] != next_[rank]) {
        arrived[rank] = next_[rank];
        awake.push_back(peer_of(rank));
      }
    }
    return std::move(next_);
  }

 private:
  bool may_pass(std::size_t rank) const {
    const End end = ends_[rank][next_[rank]];
    if (end.stream < 0) return true;
    const PipeStream& stream = streams_[static_cast<std::size_t>(end.stream)];
    if (is_receive(schedule_.actions[rank][next_[rank]].verb)) {
      const PipePlace& send = stream.sends[end.message];
      return passed(send) || (credits_ == 0 && arrived_at(send));
    }
    return end.message < credits_ || passed(stream.receives[end.message - credits_]);
  }

  bool arrived_at(const PipePlace& place) const {
    return next_[static_cast<std::size_t>(place.rank)] >= place.index;
  }
  bool passed(const PipePlace& place) const {
    return next_[static_cast<std::size_t>(place.rank)] > place.index;
  }

  int peer_of(std::size_t rank) const {
    const PipeStream& stream = streams_[static_cast<std::size_t>(ends_[rank][next_[rank]].stream)];
    return stream.source == static_cast<int>(rank) ? stream.target : stream.source;
  }

  const PipeSchedule& schedule_;
  const std::vector<PipeStream>& streams_;
  const std::size_t credits_;
  std::vector<std::size_t> next_;
  std::vector<std::vector<End>> ends_;
};

}  // namespace

bool is_send(PipeVerb verb) {
  return verb == PipeVerb::kSendForward || verb == PipeVerb::kSendBackward;
}
bool is_receive(PipeVerb verb) {
  return verb == PipeVerb::kRecvForward || verb == PipeVerb::kRecvBackward;
}

std::vector<PipeStream> streams_of(const PipeSchedule& schedule) {
  std::map<std::tuple<int, int, bool>, PipeStream> streams;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto& program = schedule.actions[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < program.size(); ++i) {
      const PipeVerb verb = program[i].verb;
      if (!is_send(verb) && !is_receive(verb)) continue;
      const bool forward = verb == PipeVerb::kSendForward || verb == PipeVerb::kRecvForward;
      const int peer = schedule.rank_of(program[i].stage + (is_send(verb) == forward ? 1 : -1));
      const int source = is_send(verb) ? rank : peer;
      const int target = is_send(verb) ? peer : rank;
      PipeStream& stream = streams[{source, target, forward}];
      stream.source = source;
      stream.target = target;
      stream.forward = forward;
      (is_send(verb) ? stream.sends : stream.receives).push_back({rank, i});
    }
  }
  std::vector<PipeStream> list;
  for (auto& [key, stream] : streams) list.push_back(std::move(stream));
  return list;
}

std::vector<std::size_t> run_programs(const PipeSchedule& schedule,
                                      const std::vector<PipeStream>& streams, std::size_t credits) {
  return Runner(schedule, streams, credits).run();
}

}  // namespace sinew::sched
