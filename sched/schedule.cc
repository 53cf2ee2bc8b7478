#include "sched/schedule.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "sched/base/error.h"
#include "sched/base/text.h"

namespace sinew::sched {

namespace {

constexpr std::array<std::string_view, 5> kVerbs = {"send", "recv", "recv_reduce", "copy",
                                                    "reduce"};
constexpr std::array<std::string_view, 3> kSpaces = {"input", "output", "scratch"};
// A text of this size is no schedule anybody wrote; the bound keeps hostile ones from filling
// memory.
constexpr std::int64_t kMaxNumber = 1 << 20;

std::string text_of(Slot slot) {
  return fmt::format("{}[{}]", kSpaces[static_cast<std::size_t>(slot.space())], slot.index());
}

int lane_of(const Step& step) { return step.lane; }

class Parser {
 public:
  explicit Parser(std::string_view text) : lines_(text_lines(text)) {}

  Schedule parse() {
    parse_header();
    while (next_line()) parse_line();
    if (!open_programs_done())
      fail("the text ends before 'rank 0'", "rank 0 .. rank world-1, each with its steps");
    return std::move(schedule_);
  }

 private:
  [[noreturn]] void fail(std::string_view found, std::string_view legal) const {
    throw UsageError(fmt::format("schedule line {}: {}; legal: {}", line_, found, legal));
  }

  bool next_line() {
    while (line_ < lines_.size()) {
      std::string_view line = lines_[line_++];
      line = line.substr(0, line.find('#'));
      words_ = fields(line);
      if (!words_.empty()) return true;
    }
    return false;
  }

  std::int64_t number(std::size_t at, std::string_view what, std::int64_t low,
                      std::int64_t high) const {
    if (at >= words_.size())
      fail(fmt::format("{} is missing", what), fmt::format("{} to {}", low, high));
    std::int64_t value = 0;
    try {
      value = parse_int(words_[at], what);
    } catch (const UsageError& error) {
      fail(error.what(), fmt::format("{} to {}", low, high));
    }
    if (value < low || value > high)
      fail(fmt::format("{} is {}", what, value), fmt::format("{} to {}", low, high));
    return value;
  }

  void parse_header() {
    if (!next_line() || words_.size() != 2 || words_[0] != "schedule")
      fail("no header", "schedule NAME, which is one word");
    schedule_.name = words_[1];
    if (!next_line() || words_.size() != 10 || words_[0] != "contract" || words_[2] != "world" ||
        words_[4] != "root" || words_[6] != "chunks_per_block" || words_[8] != "segments") {
      fail("no contract", "contract OP world P root R chunks_per_block C segments K");
    }
    try {
      schedule_.contract.op = parse_collective(words_[1]);
    } catch (const UsageError& error) {
      fail(error.what(), "as listed");
    }
    schedule_.contract.world = static_cast<int>(number(3, "world", 1, kMaxWorld));
    schedule_.contract.root = static_cast<int>(number(5, "root", 0, schedule_.contract.world - 1));
    schedule_.contract.chunks_per_block = static_cast<int>(
        number(7, "chunks_per_block", 1, kMaxChunks / schedule_.contract.blocks()));
    schedule_.segments = static_cast<int>(number(9, "segments", 0, kMaxNumber));
    schedule_.programs.resize(static_cast<std::size_t>(schedule_.contract.world));
  }

  [[nodiscard]] bool open_programs_done() const { return rank_ + 1 == schedule_.contract.world; }

  void parse_line() {
    if (words_[0] == "rank") {
      rank_ = static_cast<int>(number(1, "rank", rank_ + 1, rank_ + 1));
      if (rank_ >= schedule_.contract.world)
        fail("one rank too many", "as many as the contract's world");
      if (words_.size() != 2) fail("words after the rank", "rank R");
    } else if (rank_ < 0) {
      fail(fmt::format("'{}'", words_[0]), "rank 0");
    } else if (words_[0] == "scratch") {
      for (std::size_t i = 1; i < words_.size(); ++i) {
        program().scratch_chunk.push_back(static_cast<std::uint32_t>(
            number(i, "scratch chunk", 0, schedule_.contract.chunks() - 1)));
      }
    } else {
      parse_step();
    }
  }

  Program& program() { return schedule_.programs[static_cast<std::size_t>(rank_)]; }

  Slot slot(std::size_t at, int chunks) {
    if (at >= words_.size()) fail("a slot is missing", "input[c], output[c] or scratch[s]");
    const std::string_view word = words_[at];
    const auto open = word.find('[');
    if (open == std::string_view::npos || word.back() != ']') {
      fail(fmt::format("'{}' is no slot", word), "input[c], output[c] or scratch[s]");
    }
    const std::string_view space = word.substr(0, open);
    const std::string_view digits = word.substr(open + 1, word.size() - open - 2);
    for (std::size_t i = 0; i < kSpaces.size(); ++i) {
      if (kSpaces[i] != space) continue;
      const bool scratch = static_cast<Space>(i) == Space::kScratch;
      const std::int64_t size = scratch ? static_cast<std::int64_t>(program().scratch_chunk.size())
                                        : schedule_.contract.chunks();
      std::int64_t index = -1;
      try {
        index = parse_int(digits, "slot");
      } catch (const UsageError& error) {
        fail(error.what(), "a slot number");
      }
      if (index < 0 || index + chunks > size) {
        fail(fmt::format("'{}' with {} chunk(s) reaches past the {} slots", word, chunks, size),
             "slots that exist");
      }
      return Slot::of(static_cast<Space>(i), static_cast<std::uint32_t>(index));
    }
    fail(fmt::format("'{}' is no slot", word), "input[c], output[c] or scratch[s]");
  }

  // VERB PEER LANE CHUNKS SOURCE TARGET [DEPENDENCE...]
  void parse_step() {
    Step step{};
    std::size_t verb = 0;
    while (verb < kVerbs.size() && kVerbs[verb] != words_[0]) ++verb;
    if (verb == kVerbs.size())
      fail(fmt::format("'{}'", words_[0]), "rank, scratch, send, recv, recv_reduce, copy, reduce");
    step.verb = static_cast<Verb>(verb);
    step.peer = static_cast<std::uint16_t>(number(1, "peer", 0, schedule_.contract.world - 1));
    if (words_.size() > 2 && words_[2].ends_with('+')) {
      step.joined = 1;
      words_[2].remove_suffix(1);
    }
    step.lane = static_cast<std::uint8_t>(number(2, "lane", 0, kMaxLane)) & kMaxLane;
    step.chunks = static_cast<std::uint16_t>(number(3, "chunks", 1, schedule_.contract.chunks()));
    step.source = slot(4, step.chunks);
    step.target = slot(5, step.chunks);
    const std::int64_t here = static_cast<std::int64_t>(program().steps.size());
    for (std::size_t i = 6; i < words_.size(); ++i) {
      program().dependences.push_back(
          static_cast<std::uint32_t>(number(i, "dependence", 0, here - 1)));
    }
    if (words_.size() - 6 > 65535) fail("too many dependences", "at most 65535");
    step.dependences = static_cast<std::uint16_t>(words_.size() - 6);
    program().steps.push_back(step);
  }

  std::vector<std::string_view> lines_;
  std::vector<std::string_view> words_;
  std::size_t line_ = 0;
  int rank_ = -1;
  Schedule schedule_;
};

}  // namespace

std::string_view name_of(Verb verb) { return kVerbs[static_cast<std::size_t>(verb)]; }

std::string describe(const Step& step) {
  const auto range = [&](Slot slot) {
    if (step.chunks == 1) return text_of(slot);
    return fmt::format("{}[{}..{}]", kSpaces[static_cast<std::size_t>(slot.space())], slot.index(),
                       slot.index() + step.chunks - 1);
  };
  const std::string lane = step.lane == 0 ? "" : fmt::format(" lane {}", lane_of(step));
  const std::string_view verb = name_of(step.verb);
  switch (step.verb) {
    case Verb::kSend:
      return fmt::format("{} {} to {}{}", verb, range(step.source), step.peer, lane);
    case Verb::kRecv:
      return fmt::format("{} {} <- message of {}{}", verb, range(step.target), step.peer, lane);
    case Verb::kRecvReduce:
      return fmt::format("{} {} <- {} + message of {}{}", verb, range(step.target),
                         range(step.source), step.peer, lane);
    case Verb::kCopy:
      return fmt::format("{} {} <- {}", verb, range(step.target), range(step.source));
    case Verb::kReduce:
      return fmt::format("{} {} <- {} + {}", verb, range(step.target), range(step.target),
                         range(step.source));
  }
  return {};
}

std::string print(const Schedule& schedule) {
  const Contract& contract = schedule.contract;
  std::string text =
      fmt::format("schedule {}\ncontract {} world {} root {} chunks_per_block {} segments {}\n",
                  schedule.name, name_of(contract.op), contract.world, contract.root,
                  contract.chunks_per_block, schedule.segments);
  const auto out = std::back_inserter(text);
  for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    const Program& program = schedule.programs[rank];
    fmt::format_to(out, "rank {}\n", rank);
    if (!program.scratch_chunk.empty())
      fmt::format_to(out, "scratch {}\n", fmt::join(program.scratch_chunk, " "));
    std::size_t next = 0;
    for (const Step& step : program.steps) {
      fmt::format_to(out, "{} {} {}{} {} {} {}", name_of(step.verb), step.peer, lane_of(step),
                     step.joined != 0 ? "+" : "", step.chunks, text_of(step.source),
                     text_of(step.target));
      for (int i = 0; i < step.dependences; ++i)
        fmt::format_to(out, " {}", program.dependences[next++]);
      text += '\n';
    }
  }
  return text;
}

Schedule parse_schedule(std::string_view text) { return Parser(text).parse(); }

}  // namespace sinew::sched
