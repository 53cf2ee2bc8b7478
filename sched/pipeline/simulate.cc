#include "sched/pipeline/simulate.h"

#include <algorithm>

#include "sched/base/check.h"
#include "sched/pipeline/streams.h"

namespace sinew::sched {

namespace {

// The task graph of a schedule. Resources 3r, 3r+1, 3r+2 are rank r's computation and its sends
// forward, backward.
class Lowering {
 public:
  Lowering(const PipeSchedule& schedule, std::span<const PipeTimes> times)
      : schedule_(schedule), times_(times), split_(splits_backward(schedule)) {
    CHECK(times.size() == 1 || times.size() == static_cast<std::size_t>(schedule.stages()));
    chunk_.resize(static_cast<std::size_t>(schedule.stages()));
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      int chunk = 0;
      for (const int stage : stages_of(schedule, rank))
        chunk_[static_cast<std::size_t>(stage)] = chunk++;
      for (int lane = 0; lane < 3; ++lane) (void)graph_.add_resource(rank, lane);
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) add_program(rank);
    connect();
  }

  PipeSimulation simulate() const {
    const SimulatedTasks done = graph_.simulate();
    PipeSimulation result;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      double begin = done.makespan;
      double end = 0;
      for (const int task : computations_[static_cast<std::size_t>(rank)]) {
        const auto index = static_cast<std::size_t>(task);
        begin = std::min(begin, done.begin[index]);
        end = std::max(end, done.end[index]);
      }
      result.ideal = std::max(result.ideal, busy_[static_cast<std::size_t>(rank)]);
      result.bubble = std::max(result.bubble, end - begin);
    }
    result.makespan = done.makespan;
    result.bubble = result.ideal > 0 ? result.bubble / result.ideal - 1 : 0;
    result.makespan_bubble = result.ideal > 0 ? result.makespan / result.ideal - 1 : 0;
    result.timeline =
        graph_.timeline(done, schedule_.name + ", p " + std::to_string(schedule_.ranks) + " v " +
                                  std::to_string(schedule_.chunks) + " m " +
                                  std::to_string(schedule_.microbatches));
    result.timeline.lane_names = {"", "forward", "backward"};
    return result;
  }

 private:
  const PipeTimes& times_of(int stage) const {
    return times_[times_.size() == 1 ? 0 : static_cast<std::size_t>(stage)];
  }

  double duration(const PipeAction& action) const {
    const PipeTimes& times = times_of(action.stage);
    switch (action.verb) {
      case PipeVerb::kForward:
        return times.forward;
      case PipeVerb::kBackward:
        return split_ ? times.backward : times.backward + times.weight;
      case PipeVerb::kWeight:
        return times.weight;
      case PipeVerb::kSendForward:
      case PipeVerb::kSendBackward:
        return times.transfer;
      case PipeVerb::kRecvForward:
      case PipeVerb::kRecvBackward:
        return 0;
    }
    return 0;
  }

  std::string label(const PipeAction& action) const {
    const std::string number = std::to_string(action.microbatch);
    switch (action.verb) {
      case PipeVerb::kForward:
      case PipeVerb::kBackward:
      case PipeVerb::kWeight:
        return std::string(name_of(action.verb)) + number;
      case PipeVerb::kSendForward:
        return duration(action) > 0 ? ">" + number : "";
      case PipeVerb::kSendBackward:
        return duration(action) > 0 ? "<" + number : "";
      case PipeVerb::kRecvForward:
      case PipeVerb::kRecvBackward:
        return "";
    }
    return "";
  }

  void add_program(int rank) {
    auto& computations = computations_.emplace_back();
    auto& tasks = tasks_.emplace_back();
    double& busy = busy_.emplace_back(0);
    int issued_after = -1;  // the last task of the computation stream
    for (const PipeAction& action : schedule_.actions[static_cast<std::size_t>(rank)]) {
      const int lane = action.verb == PipeVerb::kSendForward    ? 1
                       : action.verb == PipeVerb::kSendBackward ? 2
                                                                : 0;
      const int task = graph_.add_task(duration(action), 3 * rank + lane, label(action));
      graph_.set_shade(task, chunk_[action.stage]);
      tasks.push_back(task);
      if (lane != 0) {
        if (issued_after >= 0) graph_.add_predecessor(task, issued_after);
        continue;
      }
      issued_after = task;
      if (!is_receive(action.verb)) {
        computations.push_back(task);
        busy += duration(action);
      }
    }
  }

  // What ties ranks together is the messages alone: inside a rank program order already says more
  // than data does.
  void connect() {
    const std::vector<PipeStream> streams = streams_of(schedule_);
    CHECK(!streams.empty() || schedule_.ranks == 1);  // insert_messages comes first
    for (const PipeStream& stream : streams) {
      CHECK_EQ(stream.sends.size(), stream.receives.size());
      for (std::size_t i = 0; i < stream.sends.size(); ++i) {
        graph_.add_predecessor(task_at(stream.receives[i]), task_at(stream.sends[i]));
      }
    }
  }

  int task_at(const PipePlace& place) const {
    return tasks_[static_cast<std::size_t>(place.rank)][place.index];
  }

  const PipeSchedule& schedule_;
  std::span<const PipeTimes> times_;
  const bool split_;
  TaskGraph graph_;
  std::vector<int> chunk_;                      // [stages], the stage's place among its rank's
  std::vector<std::vector<int>> tasks_;         // [ranks][actions]
  std::vector<std::vector<int>> computations_;  // [ranks], tasks
  std::vector<double> busy_;                    // [ranks]
};

}  // namespace

PipeSimulation simulate(const PipeSchedule& schedule, std::span<const PipeTimes> times) {
  return Lowering(schedule, times).simulate();
}

PipeSimulation simulate(const PipeSchedule& schedule, const PipeTimes& times) {
  return simulate(schedule, std::span<const PipeTimes>(&times, 1));
}

}  // namespace sinew::sched
