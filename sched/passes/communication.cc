#include "sched/passes/communication.h"

#include <map>
#include <tuple>

namespace sinew::sched {

namespace {

// Where a receive is due: the `index`-th message of the stream `source` -> the reader, forward or
// backward.
struct Due {
  int source;
  std::size_t index;
};

// The receives of one stream, in the order of its sends.
struct Stream {
  std::vector<PipeAction> receives;
  std::size_t posted = 0;
};

using StreamKey = std::tuple<int, int, PipeVerb>;  // source, target, verb of the receive
using ActionKey = std::tuple<PipeVerb, int, std::uint32_t>;

bool computes(PipeVerb verb) {
  return verb == PipeVerb::kForward || verb == PipeVerb::kBackward || verb == PipeVerb::kWeight;
}

// The stage that uses what `action`, a computation of `rank`, computes when it lies on another
// rank, else -1. A computation that is not where its stage is placed has no place among the
// messages; the proof will say so.
int remote_reader(const PipeSchedule& schedule, int rank, const PipeAction& action) {
  if (action.verb == PipeVerb::kWeight || schedule.rank_of(action.stage) != rank) return -1;
  const int reader = action.verb == PipeVerb::kForward ? action.stage + 1 : action.stage - 1;
  if (reader < 0 || reader >= schedule.stages()) return -1;
  return schedule.rank_of(reader) == rank ? -1 : reader;
}

}  // namespace

PipeSchedule insert_messages(const PipeSchedule& schedule) {
  std::map<StreamKey, Stream> streams;
  std::map<ActionKey, Due> due;  // by the computation that needs the message
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const PipeAction& action : schedule.actions[static_cast<std::size_t>(rank)]) {
      if (!computes(action.verb)) continue;
      const int reader = remote_reader(schedule, rank, action);
      if (reader < 0) continue;
      const bool forward = action.verb == PipeVerb::kForward;
      const PipeVerb receive = forward ? PipeVerb::kRecvForward : PipeVerb::kRecvBackward;
      Stream& stream = streams[{rank, schedule.rank_of(reader), receive}];
      due[{action.verb, reader, action.microbatch}] = {rank, stream.receives.size()};
      stream.receives.push_back({receive, static_cast<std::uint16_t>(reader), action.microbatch});
    }
  }

  PipeSchedule result = schedule;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    auto& actions = result.actions[static_cast<std::size_t>(rank)];
    actions.clear();
    for (const PipeAction& action : schedule.actions[static_cast<std::size_t>(rank)]) {
      if (!computes(action.verb)) continue;
      const bool forward = action.verb == PipeVerb::kForward;
      const auto needed = due.find({action.verb, action.stage, action.microbatch});
      if (needed != due.end() && schedule.rank_of(action.stage) == rank) {
        const PipeVerb receive = forward ? PipeVerb::kRecvForward : PipeVerb::kRecvBackward;
        Stream& stream = streams[{needed->second.source, rank, receive}];
        for (; stream.posted <= needed->second.index; ++stream.posted) {
          actions.push_back(stream.receives[stream.posted]);
        }
      }
      actions.push_back(action);
      if (remote_reader(schedule, rank, action) >= 0) {
        actions.push_back({forward ? PipeVerb::kSendForward : PipeVerb::kSendBackward, action.stage,
                           action.microbatch});
      }
    }
  }
  return result;
}

}  // namespace sinew::sched
