#include "sched/verify_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "sched/places.h"

namespace sinew::sched {

namespace {

// Chunks of one number within their block have one size.
int size_class(const Contract& contract, const Program& program, Slot slot, std::uint32_t i) {
  const std::uint32_t chunk =
      slot.space() == Space::kScratch ? program.scratch_chunk[slot.index() + i] : slot.index() + i;
  return static_cast<int>(chunk) % contract.chunks_per_block;
}

class FormCheck {
 public:
  FormCheck(const Schedule& schedule, int rank)
      : contract_(schedule.contract),
        program_(schedule.programs[static_cast<std::size_t>(rank)]),
        rank_(rank) {}

  Finding run() {
    for (const std::uint32_t chunk : program_.scratch_chunk) {
      if (chunk < static_cast<std::uint32_t>(contract_.chunks())) continue;
      return {fmt::format("rank {} has scratch for chunk {}, of {} chunks", rank_, chunk,
                          contract_.chunks()),
              {}};
    }
    std::size_t next = 0;
    for (at_ = 0; at_ < program_.steps.size(); ++at_) {
      const Step& step = program_.steps[at_];
      std::string fault = fault_of(step);
      for (int d = 0; d < step.dependences && fault.empty(); ++d, ++next) {
        const std::uint32_t first = first_part(at_);
        if (next >= program_.dependences.size()) {
          fault = "has more dependences than the program lists";
        } else if (program_.dependences[next] >= first) {
          fault = fmt::format("waits for step {}, which does not come before {}",
                              program_.dependences[next], first == at_ ? "it" : "its first part");
        }
      }
      if (!fault.empty()) {
        return {fmt::format("rank {} step {} {}", rank_, at_, fault), {{rank_, at_, "here"}}};
      }
    }
    if (next != program_.dependences.size()) {
      return {fmt::format("rank {} lists {} dependences, its steps take {}", rank_,
                          program_.dependences.size(), next),
              {}};
    }
    return {};
  }

 private:
  std::string fault_of(const Step& step) const {
    if (step.verb > Verb::kReduce) return "has no verb";
    if (step.chunks == 0) return "moves no chunk";
    std::string fault = fault_of_peer(step);
    if (fault.empty() && step.joined != 0) fault = fault_of_joined(step);
    if (fault.empty()) fault = fault_of_slot(step, step.source, false);
    if (fault.empty()) fault = fault_of_slot(step, step.target, writes_target(step));
    if (fault.empty()) fault = fault_of_pair(step);
    return fault;
  }

  std::string fault_of_peer(const Step& step) const {
    const bool message = step.verb == Verb::kSend || is_receive(step.verb);
    if (message && step.peer >= contract_.world) {
      return fmt::format("names rank {} of {}", step.peer, contract_.world);
    }
    if (message && step.peer == rank_) return "is a message to itself";
    if (!message && (step.peer != rank_ || step.lane != 0 || step.joined != 0)) {
      return "is local and names another rank or a lane";
    }
    return {};
  }

  std::string fault_of_joined(const Step& step) const {
    if (at_ > 0) {
      const Step& before = program_.steps[at_ - 1];
      if (before.verb == step.verb && before.peer == step.peer && before.lane == step.lane)
        return {};
    }
    return "is joined to a step that is no message of its lane";
  }

  [[nodiscard]] std::uint32_t first_part(std::uint32_t at) const {
    while (at > 0 && program_.steps[at].joined != 0) --at;
    return at;
  }

  std::string fault_of_slot(const Step& step, Slot slot, bool written) const {
    if (slot.space() > Space::kScratch) return "names no space";
    const std::size_t slots = slot.space() == Space::kScratch
                                  ? program_.scratch_chunk.size()
                                  : static_cast<std::size_t>(contract_.chunks());
    if (slot.index() + std::size_t{step.chunks} > slots) {
      return fmt::format("reaches {}, of {} slots", slot_name(slot, step.chunks - 1U), slots);
    }
    if (written && slot.space() == Space::kInput) return "writes the input";
    for (std::uint32_t i = 0; i < step.chunks; ++i) {
      const int chunk = static_cast<int>(slot.index() + i);
      const bool exists = slot.space() == Space::kScratch ||
                          (slot.space() == Space::kInput ? contract_.has_input(rank_, chunk)
                                                         : contract_.has_output(rank_, chunk));
      if (!exists) return fmt::format("uses {}, which this rank has not", slot_name(slot, i));
    }
    return {};
  }

  std::string fault_of_pair(const Step& step) const {
    if (step.verb == Verb::kSend || step.verb == Verb::kRecv) {
      return step.source == step.target ? "" : "has two slots for one message end";
    }
    for (std::uint32_t i = 0; i < step.chunks; ++i) {
      if (size_class(contract_, program_, step.source, i) !=
          size_class(contract_, program_, step.target, i)) {
        return fmt::format("combines chunks of different sizes, {} and {}",
                           slot_name(step.source, i), slot_name(step.target, i));
      }
    }
    const std::size_t source = place_of(contract_, step.source);
    const std::size_t target = place_of(contract_, step.target);
    const std::size_t distance = source < target ? target - source : source - target;
    const bool shifted = distance != 0 && distance < step.chunks;
    return shifted ? "reads and writes ranges that overlap" : "";
  }

  const Contract& contract_;
  const Program& program_;
  int rank_;
  std::uint32_t at_ = 0;
};

// Whether a program's dependences order two of its steps, directly or over others.
class Ordering {
 public:
  explicit Ordering(const Program& program) : program_(program) {
    begin_.push_back(0);
    for (const Step& step : program.steps) begin_.push_back(begin_.back() + step.dependences);
    visited_.assign(program.steps.size(), 0);
  }

  bool before(std::uint32_t first, std::uint32_t second) {
    ++visit_;
    stack_ = {second};
    while (!stack_.empty()) {
      const std::uint32_t at = stack_.back();
      stack_.pop_back();
      for (std::size_t i = begin_[at]; i < begin_[at + 1]; ++i) {
        const std::uint32_t wait = program_.dependences[i];
        if (wait == first) return true;
        if (wait < first || visited_[wait] == visit_) continue;  // steps wait for earlier ones only
        visited_[wait] = visit_;
        stack_.push_back(wait);
      }
    }
    return false;
  }

 private:
  const Program& program_;
  std::vector<std::size_t> begin_;
  std::vector<std::uint32_t> visited_;
  std::vector<std::uint32_t> stack_;
  std::uint32_t visit_ = 0;
};

// Every read must follow the last write, every write the reads since then (or that write): then all
// earlier pairs are ordered through them.
class RaceCheck {
 public:
  RaceCheck(const Schedule& schedule, int rank)
      : contract_(schedule.contract),
        program_(schedule.programs[static_cast<std::size_t>(rank)]),
        rank_(rank),
        ordering_(program_),
        log_(program_.steps.empty()
                 ? 0
                 : static_cast<std::size_t>(contract_.chunks()) + program_.scratch_chunk.size()) {}

  Finding run() {
    for (std::uint32_t at = 0; at < program_.steps.size(); ++at) {
      const Step& step = program_.steps[at];
      for (std::uint32_t i = 0; i < step.chunks; ++i) {
        if (reads_source(step) && !read(at, step.source, i)) return race(at, step.source, i);
        if (reads_target(step) && !read(at, step.target, i)) {
          return race(at, step.target, i);
        }
        if (writes_target(step) && !write(at, step.target, i)) return race(at, step.target, i);
      }
    }
    return {};
  }

 private:
  bool follows(std::span<const std::uint32_t> earlier, std::uint32_t at) {
    return std::ranges::all_of(earlier, [&](std::uint32_t first) {
      other_ = first;
      return first == at || ordering_.before(first, at);
    });
  }

  bool read(std::uint32_t at, Slot slot, std::uint32_t i) {
    const std::size_t place = place_of(contract_, slot) + i;
    if (!follows(log_.before_read(place), at)) return false;
    log_.note_read(place, at);
    return true;
  }

  bool write(std::uint32_t at, Slot slot, std::uint32_t i) {
    const std::size_t place = place_of(contract_, slot) + i;
    if (!follows(log_.before_write(place), at)) return false;
    log_.note_write(place, at);
    return true;
  }

  [[nodiscard]] Finding race(std::uint32_t at, Slot slot, std::uint32_t i) const {
    return {fmt::format("rank {} steps {} and {} race on {}: no dependence orders them", rank_,
                        other_, at, slot_name(slot, i)),
            {{rank_, other_, "either may be first"}, {rank_, at, "either may be first"}}};
  }

  const Contract& contract_;
  const Program& program_;
  int rank_;
  Ordering ordering_;
  PlaceLog log_;
  std::uint32_t other_ = 0;  // the last one asked about
};

std::string fault_of_contract(const Schedule& schedule) {
  const Contract& c = schedule.contract;
  if (static_cast<int>(c.op) >= kCollectiveCount) return "the contract names no operation";
  if (c.world < 1 || c.world > kMaxWorld) {
    return fmt::format("world {} is out of range, 1 to {}", c.world, kMaxWorld);
  }
  if (c.root < 0 || c.root >= c.world) {
    return fmt::format("root {} is no rank, 0 to {}", c.root, c.world - 1);
  }
  if (c.chunks_per_block < 1 || c.chunks_per_block > kMaxChunks / c.blocks()) {
    return fmt::format("chunks_per_block {} is out of range, 1 to {}", c.chunks_per_block,
                       kMaxChunks / c.blocks());
  }
  if (schedule.segments < 0) return "a negative number of segments";
  if (schedule.programs.size() != static_cast<std::size_t>(c.world)) {
    return fmt::format("{} programs for world {}", schedule.programs.size(), c.world);
  }
  return {};
}

}  // namespace

std::string slot_name(Slot slot, std::uint32_t offset) {
  constexpr const char* kNames[] = {"input", "output", "scratch"};
  return fmt::format("{}[{}]", kNames[static_cast<std::size_t>(slot.space())],
                     slot.index() + offset);
}

Finding check_form(const Schedule& schedule) {
  std::string fault = fault_of_contract(schedule);
  if (!fault.empty()) return {fault, {}};
  for (int rank = 0; rank < schedule.contract.world; ++rank) {
    Finding finding = FormCheck(schedule, rank).run();
    if (!finding.failure.empty()) return finding;
  }
  return {};
}

Finding check_messages(const Schedule& schedule, const Matching& matching) {
  const Contract& contract = schedule.contract;
  for (const Lane& lane : matching.lanes) {
    const Program& from = schedule.programs[static_cast<std::size_t>(lane.source)];
    const Program& to = schedule.programs[static_cast<std::size_t>(lane.target)];
    const std::size_t pairs = std::min(lane.sends.size(), lane.receives.size());
    for (std::size_t i = 0; i < pairs; ++i) {
      const Step& send = from.steps[lane.sends[i]];
      const Step& receive = to.steps[lane.receives[i]];
      bool same = send.chunks == receive.chunks && send.joined == receive.joined;
      for (std::uint32_t c = 0; same && c < send.chunks; ++c) {
        same = size_class(contract, from, send.source, c) ==
               size_class(contract, to, receive.target, c);
      }
      if (same) continue;
      return {
          fmt::format("rank {} step {} sends {} chunk(s) from {}, rank {} step {} receives {} "
                      "chunk(s) to {}: not the same message",
                      lane.source, lane.sends[i], send.chunks, slot_name(send.source, 0),
                      lane.target, lane.receives[i], receive.chunks, slot_name(receive.target, 0)),
          {{lane.source, lane.sends[i], "sent"}, {lane.target, lane.receives[i], "received"}}};
    }
    if (lane.sends.size() == lane.receives.size()) continue;
    const bool sent = lane.sends.size() > pairs;
    const int rank = sent ? lane.source : lane.target;
    const std::uint32_t step = sent ? lane.sends[pairs] : lane.receives[pairs];
    return {
        fmt::format("rank {} step {} {} rank {} on lane {}: message {} of that lane is never {}",
                    rank, step, sent ? "sends to" : "receives from",
                    sent ? lane.target : lane.source, lane.lane, pairs, sent ? "received" : "sent"),
        {{rank, step, "unmatched"}}};
  }
  return {};
}

Finding check_races(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.contract.world; ++rank) {
    Finding finding = RaceCheck(schedule, rank).run();
    if (!finding.failure.empty()) return finding;
  }
  return {};
}

}  // namespace sinew::sched
