#include "sched/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sched/contents.h"
#include "sched/matching.h"
#include "sched/order.h"
#include "sched/simulate.h"
#include "sched/verify_steps.h"

namespace sinew::sched {

namespace {

// What the proof may hold at once: enough for a ring of 1024 ranks, and a bound for hostile texts.
constexpr std::size_t kMaxValues = std::size_t{1} << 26;
constexpr std::size_t kMaxContentBytes = std::size_t{1} << 29;

// A drawing of the steps around each marked one.
std::string draw(const Schedule& schedule, const std::vector<StepMark>& marks) {
  constexpr std::size_t kAround = 2;
  constexpr std::size_t kMostMarks = 12;
  std::string text;
  for (std::size_t m = 0; m < std::min(marks.size(), kMostMarks); ++m) {
    const auto& [rank, at, note] = marks[m];
    const std::vector<Step>& steps = schedule.programs[static_cast<std::size_t>(rank)].steps;
    text += fmt::format("rank {}\n", rank);
    const std::size_t first = at < kAround ? 0 : at - kAround;
    for (std::size_t i = first; i < std::min(steps.size(), at + kAround + 1); ++i) {
      text += fmt::format("  {} {:>4}  {}{}\n", i == at ? '>' : ' ', i, describe(steps[i]),
                          i == at && !note.empty() ? "    <- " + note : "");
    }
  }
  if (marks.size() > kMostMarks) {
    text += fmt::format("... and {} more\n", marks.size() - kMostMarks);
  }
  return text;
}

Verdict refuted(const Schedule& schedule, Finding finding) {
  Verdict verdict;
  verdict.failure = std::move(finding.failure);
  verdict.drawing = draw(schedule, finding.marks);
  return verdict;
}

// The input that output slot `chunk` of `rank` must hold, and from whom: -1 is all ranks.
struct Expected {
  int chunk;
  int rank;
};

Expected expected_at(const Contract& contract, int rank, int chunk) {
  const int block = chunk / contract.chunks_per_block;
  if (contract.reduces()) return {chunk, -1};
  if (contract.op == Collective::kAllToAll) {
    return {rank * contract.chunks_per_block + chunk % contract.chunks_per_block, block};
  }
  return {chunk, contract.rooted() && contract.op != Collective::kGather ? contract.root : block};
}

// Executes all programs on contents, one step at a time in a legal order.
class Execution {
 public:
  Execution(const Schedule& schedule, const Matching& matching)
      : schedule_(schedule), matching_(matching), contents_(schedule.contract.world) {
    const auto chunks = static_cast<std::size_t>(schedule.contract.chunks());
    for (const Program& program : schedule.programs) {
      const std::size_t slots = program.steps.empty() ? 0 : chunks + program.scratch_chunk.size();
      values_.emplace_back(slots, kEmpty);
    }
  }

  Finding run(const std::vector<std::uint32_t>& order) {
    const std::vector<std::uint32_t> first = first_numbers(schedule_);
    for (const std::uint32_t number : order) {
      const auto rank = static_cast<std::size_t>(
          std::upper_bound(first.begin(), first.end(), number) - first.begin() - 1);
      Finding finding = step(static_cast<int>(rank), number - first[rank]);
      if (!finding.failure.empty()) return finding;
      if (contents_.memory_bytes() > kMaxContentBytes) {
        return {"the schedule is too large to prove: its sums name too many ranks", {}};
      }
    }
    return {};
  }

  // The result, against the contract.
  Finding check_outputs(bool& same_expression) {
    const Contract& contract = schedule_.contract;
    same_expression = true;
    for (int chunk = 0; chunk < contract.chunks(); ++chunk) {
      Expression common = kEmpty;
      int common_rank = 0;
      for (int rank = 0; rank < contract.world; ++rank) {
        if (!contract.has_output(rank, chunk)) continue;
        const Expression value = values_[static_cast<std::size_t>(rank)].empty()
                                     ? kEmpty
                                     : this->value(rank, static_cast<std::size_t>(chunk));
        Finding finding = check_output(rank, chunk, value);
        if (!finding.failure.empty()) return finding;
        if (common == kEmpty) {
          common = value;
          common_rank = rank;
        }
        if (common == value || contract.op == Collective::kAllToAll) continue;
        same_expression = false;
        if (contract.op == Collective::kAllReduce) {
          return {fmt::format("ranks {} and {} reduce chunk {} in different groupings, so their "
                              "bits may differ: {} against {}",
                              common_rank, rank, chunk, contents_.formula(common),
                              contents_.formula(value)),
                  {}};
        }
      }
    }
    return {};
  }

 private:
  Expression& value(int rank, std::size_t place) {
    return values_[static_cast<std::size_t>(rank)][place];
  }

  // What a read of place `slot + i` gives; kEmpty when nothing may be read there.
  Expression read(int rank, Slot slot, std::uint32_t i) {
    const auto index = slot.index() + i;
    const auto chunks = static_cast<std::uint32_t>(schedule_.contract.chunks());
    switch (slot.space()) {
      case Space::kInput:
        return value(rank, index) == kEmpty ? contents_.input(rank, static_cast<int>(index))
                                            : kEmpty;
      case Space::kOutput:
        return value(rank, index);
      case Space::kScratch:
        return value(rank, chunks + index);
    }
    return kEmpty;
  }

  void write(int rank, Slot slot, std::uint32_t i, Expression content) {
    const auto chunks = static_cast<std::uint32_t>(schedule_.contract.chunks());
    value(rank, (slot.space() == Space::kScratch ? chunks : 0) + slot.index() + i) = content;
  }

  Finding empty_read(int rank, std::uint32_t at, Slot slot, std::uint32_t i) {
    const bool gone = slot.space() == Space::kInput;
    const std::string name = slot_name(slot, i);
    return {fmt::format("rank {} step {} reads {}, {}", rank, at, name,
                        gone ? "which is gone in place: its output was written before"
                             : "to which nothing was written before"),
            {{rank, at, gone ? "input overwritten" : "empty"}}};
  }

  Finding step(int rank, std::uint32_t at) {
    const Step& s = schedule_.programs[static_cast<std::size_t>(rank)].steps[at];
    std::vector<Expression>& message = message_;
    if (is_receive(s.verb)) {
      const LanePosition position = matching_.positions[static_cast<std::size_t>(rank)][at];
      message = take(position);
    } else {
      message.clear();
    }
    for (std::uint32_t i = 0; i < s.chunks; ++i) {
      Finding finding = move_one(rank, at, s, i);
      if (!finding.failure.empty()) return finding;
    }
    if (s.verb == Verb::kSend) {
      const LanePosition position = matching_.positions[static_cast<std::size_t>(rank)][at];
      flying_[key_of(position)] = message;
    }
    return {};
  }

  static std::uint64_t key_of(LanePosition position) {
    return static_cast<std::uint64_t>(position.lane) << 32 | position.index;
  }

  std::vector<Expression> take(LanePosition position) {
    const auto at = flying_.find(key_of(position));
    std::vector<Expression> message = std::move(at->second);
    flying_.erase(at);
    return message;
  }

  Finding move_one(int rank, std::uint32_t at, const Step& s, std::uint32_t i) {
    Expression source = kEmpty;
    if (s.verb != Verb::kRecv) {
      source = read(rank, s.source, i);
      if (source == kEmpty) return empty_read(rank, at, s.source, i);
    }
    switch (s.verb) {
      case Verb::kSend:
        message_.push_back(source);
        return {};
      case Verb::kRecv:
        write(rank, s.target, i, message_[i]);
        return {};
      case Verb::kCopy:
        write(rank, s.target, i, source);
        return {};
      case Verb::kRecvReduce:
        return reduce(rank, at, s, i, source, message_[i]);
      case Verb::kReduce: {
        const Expression target = read(rank, s.target, i);
        if (target == kEmpty) return empty_read(rank, at, s.target, i);
        return reduce(rank, at, s, i, target, source);
      }
    }
    return {};
  }

  Finding reduce(int rank, std::uint32_t at, const Step& s, std::uint32_t i, Expression left,
                 Expression right) {
    const Expression sum = contents_.combine(left, right);
    if (sum == kEmpty) {
      return {fmt::format("rank {} step {} adds chunk {} to chunk {} in {}", rank, at,
                          contents_.chunk(right), contents_.chunk(left), slot_name(s.target, i)),
              {{rank, at, "two chunks mixed"}}};
    }
    if (contents_.repeats(sum) && schedule_.contract.op != Collective::kBarrier) {
      return {
          fmt::format("rank {} step {} counts a rank twice in {}: {} and {}", rank, at,
                      slot_name(s.target, i), contents_.describe(left), contents_.describe(right)),
          {{rank, at, "counted twice"}}};
    }
    write(rank, s.target, i, sum);
    return {};
  }

  Finding check_output(int rank, int chunk, Expression found) {
    const Contract& contract = schedule_.contract;
    const Expected expected = expected_at(contract, rank, chunk);
    const bool right = found != kEmpty && contents_.chunk(found) == expected.chunk &&
                       (expected.rank < 0 ? contents_.contributors(found) == contract.world
                                          : contents_.contributors(found) == 1 &&
                                                contents_.contributes(found, expected.rank));
    if (right) return {};
    const std::string wanted =
        expected.rank < 0
            ? contract.world == 1
                  ? fmt::format("chunk {} of rank 0", expected.chunk)
                  : fmt::format("chunk {} of ranks 0-{}", expected.chunk, contract.world - 1)
            : fmt::format("chunk {} of rank {}", expected.chunk, expected.rank);
    return {fmt::format("rank {} ends with {} in output[{}], expected {}", rank,
                        contents_.describe(found), chunk, wanted),
            last_writer(rank, chunk)};
  }

  [[nodiscard]] std::vector<StepMark> last_writer(int rank, int chunk) const {
    const std::vector<Step>& steps = schedule_.programs[static_cast<std::size_t>(rank)].steps;
    for (std::size_t at = steps.size(); at-- > 0;) {
      const Step& s = steps[at];
      const auto index = static_cast<std::uint32_t>(chunk);
      if (s.verb != Verb::kSend && s.target.space() == Space::kOutput &&
          s.target.index() <= index && index < s.target.index() + s.chunks) {
        return {{rank, static_cast<std::uint32_t>(at), "the last to write it"}};
      }
    }
    return {};
  }

  const Schedule& schedule_;
  const Matching& matching_;
  Contents contents_;
  std::vector<std::vector<Expression>> values_;  // [rank][output and input chunk, then scratch]
  std::unordered_map<std::uint64_t, std::vector<Expression>> flying_;
  std::vector<Expression> message_;
};

Finding deadlock(const Schedule& schedule, const std::vector<std::uint32_t>& cycle) {
  const std::vector<std::uint32_t> first = first_numbers(schedule);
  Finding finding;
  finding.failure = "deadlock:";
  for (const std::uint32_t number : cycle) {
    const auto rank = static_cast<std::size_t>(
        std::upper_bound(first.begin(), first.end(), number) - first.begin() - 1);
    const std::uint32_t at = number - first[rank];
    if (finding.marks.size() < 8) {
      finding.failure +=
          fmt::format("{} rank {} step {}", finding.marks.empty() ? "" : " waits for", rank, at);
    }
    finding.marks.push_back({static_cast<int>(rank), at, "never happens"});
  }
  finding.failure += finding.marks.size() > 8 ? " and so on in a ring of waits"
                                              : " waits for the first: a ring of waits";
  return finding;
}

bool too_large(const Schedule& schedule) {
  std::size_t values = 0;
  for (const Program& program : schedule.programs) {
    if (program.steps.empty()) continue;
    values += static_cast<std::size_t>(schedule.contract.chunks()) + program.scratch_chunk.size();
  }
  return values > kMaxValues;
}

void count(const Schedule& schedule, const Matching& matching, Facts& facts) {
  facts.credits = least_credits(schedule, matching, kUnlimited);
  facts.credits_in_order = least_credits(schedule, matching, 1);
  facts.cost = count_cost(schedule);
  const double chunks = schedule.contract.chunks();
  for (const Program& program : schedule.programs) {
    int messages = 0;
    double sent = 0;
    double received = 0;
    for (const Step& step : program.steps) {
      if (step.verb == Verb::kSend) {
        ++messages;
        sent += step.chunks;
      } else if (is_receive(step.verb)) {
        received += step.chunks;
      }
    }
    facts.messages = std::max(facts.messages, messages);
    facts.sent = std::max(facts.sent, sent / chunks);
    facts.received = std::max(facts.received, received / chunks);
    facts.scratch_chunks =
        std::max(facts.scratch_chunks, static_cast<int>(program.scratch_chunk.size()));
  }
}

}  // namespace

Verdict verify(const Schedule& schedule) {
  Finding finding = check_form(schedule);
  if (!finding.failure.empty()) return refuted(schedule, finding);
  if (too_large(schedule)) {
    return refuted(schedule, {"the schedule is too large to prove: too many slots", {}});
  }
  const Matching matching = match(schedule);
  finding = check_messages(schedule, matching);
  if (finding.failure.empty()) finding = check_races(schedule);
  if (!finding.failure.empty()) return refuted(schedule, finding);
  const OrderResult order = order_steps(schedule, matching, {});
  if (!order.completes()) return refuted(schedule, deadlock(schedule, order.cycle));

  Execution execution(schedule, matching);
  finding = execution.run(order.order);
  if (!finding.failure.empty()) return refuted(schedule, finding);
  Verdict verdict;
  finding = execution.check_outputs(verdict.facts.same_expression);
  if (!finding.failure.empty()) return refuted(schedule, finding);
  count(schedule, matching, verdict.facts);
  return verdict;
}

}  // namespace sinew::sched
