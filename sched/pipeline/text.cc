// The text form of pipeline schedules:
//
//   pipeline 1f1b ranks 2 chunks 1 microbatches 2
//   placement 0 1
//   rank 0: F0.0 sendF0.0 F0.1 sendF0.1 recvB0.0 B0.0 recvB0.1 B0.1
//   rank 1: recvF1.0 F1.0 B1.0 sendB1.0 recvF1.1 F1.1 B1.1 sendB1.1
//
// An action is its verb, the virtual stage, a point and the microbatch. Read more freely than
// written: blank lines, '#' comments, a missing placement (looping) and several lines of one rank,
// which continue each other.
#include <array>

#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/pipeline/schedule.h"

namespace sinew::sched {

namespace {

constexpr std::array<std::string_view, 7> kVerbNames = {"F",     "B",     "W",    "sendF",
                                                        "recvF", "sendB", "recvB"};
constexpr int kStagesMax = 65535;
constexpr int kMicrobatchesMax = 1 << 24;

class Parser {
 public:
  PipeSchedule parse(std::string_view text) {
    for (const std::string_view line : text_lines(text)) {
      ++line_;
      const std::vector<std::string_view> words = fields(line.substr(0, line.find('#')));
      if (!words.empty()) parse_line(words);
    }
    if (!have_header_) fail("nothing", "a line 'pipeline NAME ranks P chunks V microbatches M'");
    return std::move(schedule_);
  }

 private:
  void parse_line(std::span<const std::string_view> words) {
    if (!have_header_) {
      parse_header(words);
    } else if (words[0] == "placement") {
      parse_placement(words.subspan(1));
    } else if (words[0] == "rank") {
      parse_rank(words);
    } else {
      fail(words[0], "'placement' or 'rank'");
    }
  }

  void parse_header(std::span<const std::string_view> words) {
    if (words.size() != 8 || words[0] != "pipeline" || words[2] != "ranks" ||
        words[4] != "chunks" || words[6] != "microbatches") {
      fail(words[0], "'pipeline NAME ranks P chunks V microbatches M'");
    }
    schedule_.name = words[1];
    schedule_.ranks = number(words[3], 1, kStagesMax, "ranks");
    schedule_.chunks = number(words[5], 1, kStagesMax / schedule_.ranks, "chunks");
    schedule_.microbatches = number(words[7], 1, kMicrobatchesMax, "microbatches");
    schedule_.placement = looping_placement(schedule_.ranks, schedule_.chunks);
    schedule_.actions.resize(static_cast<std::size_t>(schedule_.ranks));
    have_header_ = true;
  }

  void parse_placement(std::span<const std::string_view> words) {
    if (words.size() != schedule_.placement.size()) {
      fail(std::to_string(words.size()) + " ranks",
           "one for each of the " + std::to_string(schedule_.stages()) + " stages");
    }
    std::vector<int> held(static_cast<std::size_t>(schedule_.ranks), 0);
    for (std::size_t stage = 0; stage < words.size(); ++stage) {
      const int rank = number(words[stage], 0, schedule_.ranks - 1, "a rank");
      if (++held[static_cast<std::size_t>(rank)] > schedule_.chunks) {
        fail("rank " + std::to_string(rank) + " once more",
             std::to_string(schedule_.chunks) + " stages on every rank");
      }
      schedule_.placement[stage] = static_cast<std::uint16_t>(rank);
    }
  }

  void parse_rank(std::span<const std::string_view> words) {
    if (words.size() < 2 || words[1].back() != ':')
      fail(words.size() < 2 ? "rank" : words[1], "'rank R: ACTIONS'");
    const int rank =
        number(words[1].substr(0, words[1].size() - 1), 0, schedule_.ranks - 1, "a rank");
    for (const std::string_view word : words.subspan(2)) {
      schedule_.actions[static_cast<std::size_t>(rank)].push_back(parse_action(word));
    }
  }

  PipeAction parse_action(std::string_view word) {
    const std::size_t digits = word.find_first_of("0123456789");
    const std::size_t point = word.find('.');
    const std::string_view name = word.substr(0, digits);
    for (std::size_t verb = 0; verb < kVerbNames.size(); ++verb) {
      if (kVerbNames[verb] != name || point == std::string_view::npos || point < digits) continue;
      const int stage =
          number(word.substr(digits, point - digits), 0, schedule_.stages() - 1, "a stage");
      const int microbatch =
          number(word.substr(point + 1), 0, schedule_.microbatches - 1, "a microbatch");
      return {static_cast<PipeVerb>(verb), static_cast<std::uint16_t>(stage),
              static_cast<std::uint32_t>(microbatch)};
    }
    fail(word,
         "an action as F0.3: one of F, B, W, sendF, recvF, sendB, recvB, then STAGE.MICROBATCH");
  }

  int number(std::string_view text, int low, int high, std::string_view what) {
    std::int64_t value = -1;
    try {
      value = parse_int(text, what);
    } catch (const UsageError&) {
      value = std::int64_t{low} - 1;
    }
    if (value < low || value > high) {
      fail(text,
           std::string(what) + " from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return static_cast<int>(value);
  }

  [[noreturn]] void fail(std::string_view found, std::string_view legal) const {
    constexpr std::size_t kFoundMax =
        40;  // keeps the message one readable line whatever the file holds
    std::string shown(found.substr(0, kFoundMax));
    for (char& c : shown) {
      if (c < ' ' || c > '~') c = '?';
    }
    throw UsageError("pipeline schedule, line " + std::to_string(line_) + ": found '" + shown +
                     "', expected " + std::string(legal));
  }

  PipeSchedule schedule_;
  int line_ = 0;
  bool have_header_ = false;
};

}  // namespace

std::string_view name_of(PipeVerb verb) { return kVerbNames[static_cast<std::size_t>(verb)]; }

std::string print(const PipeAction& action) {
  return std::string(name_of(action.verb)) + std::to_string(action.stage) + "." +
         std::to_string(action.microbatch);
}

std::string print(const PipeSchedule& schedule) {
  std::string text = "pipeline " + schedule.name + " ranks " + std::to_string(schedule.ranks) +
                     " chunks " + std::to_string(schedule.chunks) + " microbatches " +
                     std::to_string(schedule.microbatches) + "\n";
  text += "placement";
  for (const int rank : schedule.placement) text += " " + std::to_string(rank);
  text += "\n";
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    text += "rank " + std::to_string(rank) + ":";
    for (const PipeAction& action : schedule.actions[rank]) text += " " + print(action);
    text += "\n";
  }
  return text;
}

PipeSchedule parse_pipe_schedule(std::string_view text) { return Parser().parse(text); }

}  // namespace sinew::sched
