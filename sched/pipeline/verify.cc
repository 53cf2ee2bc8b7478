#include "sched/pipeline/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "sched/base/error.h"
#include "sched/passes/communication.h"
#include "sched/pipeline/streams.h"

namespace sinew::sched {

namespace {

constexpr std::size_t kVerbs = 7;

struct Failure {
  std::string what;
  std::vector<PipePlace> marks;
};

using Check = std::optional<Failure>;

class Prover {
 public:
  explicit Prover(const PipeSchedule& schedule) : schedule_(schedule) {}

  PipeVerdict run() {
    PipeVerdict verdict;
    Check failure = check_shape();
    if (!failure) failure = check_once();
    if (!failure) failure = check_order();
    if (!failure) failure = check_streams();
    if (!failure) failure = check_deadlock();
    if (!failure) failure = check_weight_order();
    if (failure) {
      verdict.failure = "pipeline schedule '" + schedule_.name + "', p " +
                        std::to_string(schedule_.ranks) + " v " + std::to_string(schedule_.chunks) +
                        " m " + std::to_string(schedule_.microbatches) + ": " + failure->what;
      verdict.drawing = draw(failure->marks);
    } else {
      count_live();
      verdict.facts = facts_;
    }
    return verdict;
  }

 private:
  // Sizes agree with the fields, and each action lies on the rank of its stage.
  Check check_shape() {
    const auto ranks = static_cast<std::size_t>(schedule_.ranks);
    if (schedule_.ranks < 1 || schedule_.chunks < 1 || schedule_.microbatches < 1 ||
        schedule_.actions.size() != ranks ||
        schedule_.placement.size() != ranks * static_cast<std::size_t>(schedule_.chunks)) {
      return Failure{"the sizes of its parts do not agree", {}};
    }
    std::vector<int> held(ranks, 0);
    for (const int rank : schedule_.placement) {
      if (rank >= schedule_.ranks || ++held[static_cast<std::size_t>(rank)] > schedule_.chunks) {
        return Failure{"rank " + std::to_string(rank) + " is not one that holds " +
                           std::to_string(schedule_.chunks) + " stages",
                       {}};
      }
    }
    std::size_t actions = 0;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const auto& program = program_of(rank);
      actions += program.size();
      for (std::size_t i = 0; i < program.size(); ++i) {
        if (program[i].stage >= schedule_.stages() ||
            program[i].microbatch >= static_cast<std::uint32_t>(schedule_.microbatches)) {
          return Failure{
              print(program[i]) + " on rank " + std::to_string(rank) + " is out of range",
              {{rank, i}}};
        }
        if (schedule_.rank_of(program[i].stage) != rank) {
          return Failure{print(program[i]) + " is on rank " + std::to_string(rank) +
                             ", but the stage is placed on " +
                             std::to_string(schedule_.rank_of(program[i].stage)),
                         {{rank, i}}};
        }
      }
    }
    // Before tables of stages x microbatches are made, so that a small file cannot ask for huge
    // ones.
    cells_ = static_cast<std::size_t>(schedule_.stages()) *
             static_cast<std::size_t>(schedule_.microbatches);
    if (actions < 2 * cells_) {
      return Failure{std::to_string(actions) +
                         " actions are too few for one F and one B of each of " +
                         std::to_string(cells_) + " (stage, microbatch)",
                     {}};
    }
    return std::nullopt;
  }

  // Every action that must exist does, once; no other does. Fills place_.
  Check check_once() {
    facts_.splits_backward = splits_backward(schedule_);
    place_.assign(kVerbs * cells_, -1);
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const auto& program = program_of(rank);
      for (std::size_t i = 0; i < program.size(); ++i) {
        std::int64_t& place = place_[cell(program[i])];
        if (place >= 0) return Failure{print(program[i]) + " comes twice", {{rank, i}}};
        if (!must_exist(program[i])) {
          return Failure{
              print(program[i]) +
                  " has no peer: the neighbouring stage is on the same rank or there is none",
              {{rank, i}}};
        }
        place = static_cast<std::int64_t>(i);
      }
    }
    for (std::size_t verb = 0; verb < kVerbs; ++verb) {
      for (int stage = 0; stage < schedule_.stages(); ++stage) {
        for (int microbatch = 0; microbatch < schedule_.microbatches; ++microbatch) {
          const PipeAction action = {static_cast<PipeVerb>(verb), static_cast<std::uint16_t>(stage),
                                     static_cast<std::uint32_t>(microbatch)};
          if (!must_exist(action) || place_[cell(action)] >= 0) continue;
          const int rank = schedule_.rank_of(stage);
          return Failure{print(action) + " is missing on rank " + std::to_string(rank),
                         {{rank, program_of(rank).size()}}};
        }
      }
    }
    return std::nullopt;
  }

  // Within each program, what an action needs stands before it.
  Check check_order() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const auto& program = program_of(rank);
      for (std::size_t i = 0; i < program.size(); ++i) {
        for (const PipeAction& needed : needs(program[i])) {
          if (place_[cell(needed)] < static_cast<std::int64_t>(i)) continue;
          return Failure{print(program[i]) + " on rank " + std::to_string(rank) + " comes before " +
                             print(needed) + ", which it needs",
                         {{rank, i}}};
        }
      }
    }
    return std::nullopt;
  }

  // The i-th receive of a stream expects what its i-th send sends.
  Check check_streams() {
    streams_ = streams_of(schedule_);
    for (const PipeStream& stream : streams_) {
      // check_once gives both ends the same set of messages, so the counts agree.
      for (std::size_t i = 0; i < stream.sends.size(); ++i) {
        const PipeAction sent = at(stream.sends[i]);
        const PipeAction received = at(stream.receives[i]);
        if (received.stage == sent.stage + (stream.forward ? 1 : -1) &&
            received.microbatch == sent.microbatch)
          continue;
        return Failure{"message " + std::to_string(i) + " from rank " +
                           std::to_string(stream.source) + " to " + std::to_string(stream.target) +
                           " is " + print(sent) + ", but the receiver expects " + print(received),
                       {stream.sends[i], stream.receives[i]}};
      }
      facts_.messages += static_cast<int>(stream.sends.size());
    }
    return std::nullopt;
  }

  // With as many credits as messages only a circle of receives can block; then finds the least
  // number that does.
  Check check_deadlock() {
    std::size_t enough = 0;
    for (const PipeStream& stream : streams_) enough = std::max(enough, stream.sends.size());
    const std::vector<std::size_t> stops = run_programs(schedule_, streams_, enough);
    if (!finished(stops)) return circle(stops);
    std::size_t low = 0;
    while (low < enough) {
      const std::size_t middle = low + (enough - low) / 2;
      if (finished(run_programs(schedule_, streams_, middle))) {
        enough = middle;
      } else {
        low = middle + 1;
      }
    }
    facts_.credits = static_cast<int>(low);
    return std::nullopt;
  }

  // Every stopped rank waits for the source of its receive, which has stopped too: walk until ranks
  // repeat and keep the shortest circle.
  Check circle(const std::vector<std::size_t>& stops) {
    std::vector<PipePlace> shortest;
    for (int start = 0; start < schedule_.ranks; ++start) {
      std::vector<PipePlace> walk;
      int rank = start;
      do {
        const std::size_t stop = stops[static_cast<std::size_t>(rank)];
        if (stop == program_of(rank).size()) break;
        walk.push_back({rank, stop});
        const PipeAction blocked = at(walk.back());
        rank = schedule_.rank_of(blocked.stage + (blocked.verb == PipeVerb::kRecvForward ? -1 : 1));
      } while (rank != start && walk.size() < stops.size());
      const bool closed = !walk.empty() && rank == start;
      if (closed && (shortest.empty() || walk.size() < shortest.size())) shortest = walk;
    }
    std::string what = "deadlock with any number of buffered messages:";
    for (const PipePlace& place : shortest) {
      what += " rank " + std::to_string(place.rank) + " at " + print(at(place)) + " waits for";
    }
    return Failure{what + " rank " + std::to_string(shortest.front().rank), shortest};
  }

  Check check_weight_order() {
    const PipeVerb last = facts_.splits_backward ? PipeVerb::kWeight : PipeVerb::kBackward;
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (int microbatch = 1; microbatch < schedule_.microbatches; ++microbatch) {
        const auto action = [&](int which) {
          return PipeAction{last, static_cast<std::uint16_t>(stage),
                            static_cast<std::uint32_t>(which)};
        };
        const std::int64_t now = place_[cell(action(microbatch))];
        if (place_[cell(action(microbatch - 1))] < now) continue;
        return Failure{"weight gradients of stage " + std::to_string(stage) +
                           " do not accumulate in order: " + print(action(microbatch)) +
                           " comes before " + print(action(microbatch - 1)),
                       {{schedule_.rank_of(stage), static_cast<std::size_t>(now)}}};
      }
    }
    return std::nullopt;
  }

  void count_live() {
    const PipeVerb last = facts_.splits_backward ? PipeVerb::kWeight : PipeVerb::kBackward;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      int live = 0;
      int peak = 0;
      for (const PipeAction& action : program_of(rank)) {
        if (action.verb == PipeVerb::kForward) peak = std::max(peak, ++live);
        if (action.verb == last) --live;
      }
      facts_.peak_live.push_back(peak);
    }
  }

  // --- helpers ---

  const std::vector<PipeAction>& program_of(int rank) const {
    return schedule_.actions[static_cast<std::size_t>(rank)];
  }
  PipeAction at(const PipePlace& place) const { return program_of(place.rank)[place.index]; }

  std::size_t cell(const PipeAction& action) const {
    return static_cast<std::size_t>(action.verb) * cells_ +
           action.stage * static_cast<std::size_t>(schedule_.microbatches) + action.microbatch;
  }

  // The rank of the stage before or after, when it exists and is another one.
  bool crosses(int stage, int step) const {
    const int other = stage + step;
    return other >= 0 && other < schedule_.stages() &&
           schedule_.rank_of(other) != schedule_.rank_of(stage);
  }

  bool must_exist(const PipeAction& action) const {
    switch (action.verb) {
      case PipeVerb::kForward:
      case PipeVerb::kBackward:
        return true;
      case PipeVerb::kWeight:
        return facts_.splits_backward;
      case PipeVerb::kSendForward:
      case PipeVerb::kRecvBackward:
        return crosses(action.stage, 1);
      case PipeVerb::kRecvForward:
      case PipeVerb::kSendBackward:
        return crosses(action.stage, -1);
    }
    return false;
  }

  // Actions of the same rank that must come before `action`.
  std::vector<PipeAction> needs(const PipeAction& action) const {
    const auto same = [&](PipeVerb verb) {
      return PipeAction{verb, action.stage, action.microbatch};
    };
    const auto beside = [&](PipeVerb verb, int step) {
      return PipeAction{verb, static_cast<std::uint16_t>(action.stage + step), action.microbatch};
    };
    switch (action.verb) {
      case PipeVerb::kForward:
        if (action.stage == 0) return {};
        if (crosses(action.stage, -1)) return {same(PipeVerb::kRecvForward)};
        return {beside(PipeVerb::kForward, -1)};
      case PipeVerb::kBackward:
        if (action.stage == schedule_.stages() - 1) return {same(PipeVerb::kForward)};
        if (crosses(action.stage, 1))
          return {same(PipeVerb::kForward), same(PipeVerb::kRecvBackward)};
        return {same(PipeVerb::kForward), beside(PipeVerb::kBackward, 1)};
      case PipeVerb::kWeight:
        return {same(PipeVerb::kBackward)};
      case PipeVerb::kSendForward:
        return {same(PipeVerb::kForward)};
      case PipeVerb::kSendBackward:
        return {same(PipeVerb::kBackward)};
      case PipeVerb::kRecvForward:
      case PipeVerb::kRecvBackward:
        return {};
    }
    return {};
  }

  bool finished(const std::vector<std::size_t>& stops) const {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (stops[static_cast<std::size_t>(rank)] < program_of(rank).size()) return false;
    }
    return true;
  }

  // A line per mark with the actions round it, and one below that points at it.
  std::string draw(const std::vector<PipePlace>& marks) const {
    constexpr std::size_t kBefore = 5;
    constexpr std::size_t kAfter = 3;
    std::string text;
    for (const PipePlace& mark : marks) {
      const auto& program = program_of(mark.rank);
      const std::size_t first = mark.index - std::min(mark.index, kBefore);
      std::string line = "rank " + std::to_string(mark.rank) + ":" + (first > 0 ? " ..." : "");
      std::string pointer;
      for (std::size_t i = first; i <= std::min(mark.index + kAfter, program.size()); ++i) {
        const std::string word = i < program.size() ? print(program[i]) : "(end)";
        if (i == mark.index)
          pointer = std::string(line.size() + 1, ' ') + std::string(word.size(), '^');
        line += " " + word;
      }
      text += fmt::format("{}{}\n{}\n", line,
                          mark.index + kAfter + 1 < program.size() ? " ..." : "", pointer);
    }
    return text;
  }

  const PipeSchedule& schedule_;
  std::size_t cells_ = 0;
  std::vector<std::int64_t>
      place_;  // [verb][stage][microbatch], index in the rank's program, -1 when absent
  std::vector<PipeStream> streams_;
  PipeFacts facts_;
};

}  // namespace

PipeVerdict verify(const PipeSchedule& schedule) { return Prover(schedule).run(); }

PipeSchedule with_messages(PipeSchedule written) {
  const bool has_messages = std::ranges::any_of(written.actions, [](const auto& program) {
    return std::ranges::any_of(program, [](const PipeAction& action) {
      return is_send(action.verb) || is_receive(action.verb);
    });
  });
  return has_messages ? written : insert_messages(written);
}

PipeSchedule load_pipe_schedule(std::string_view text) {
  PipeSchedule schedule = with_messages(parse_pipe_schedule(text));
  const PipeVerdict verdict = verify(schedule);
  if (!verdict.proved()) throw UsageError(verdict.failure);
  return schedule;
}

}  // namespace sinew::sched
