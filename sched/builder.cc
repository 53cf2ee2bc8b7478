#include "sched/builder.h"

#include <algorithm>
#include <utility>

#include "sched/base/check.h"
#include "sched/base/partition.h"
#include "sched/places.h"

namespace sinew::sched {

struct Builder::Draft {
  Verb verb;
  std::uint8_t lane;
  bool joined;
  std::uint16_t peer;
  std::uint16_t chunks;
  Where source;
  Where target;
  int source_chunk;
  int target_chunk;
};

// Places here: Input and Output of a chunk are one, its scratch and its aside two more.
struct Builder::Dependency {
  int chunks;
  PlaceLog log;

  explicit Dependency(int chunk_count)
      : chunks(chunk_count), log(static_cast<std::size_t>(chunk_count) * 3) {}

  [[nodiscard]] std::size_t place(Where where, int chunk) const {
    const int group = where == Where::kScratch ? 1 : where == Where::kAside ? 2 : 0;
    return static_cast<std::size_t>(group) * static_cast<std::size_t>(chunks) +
           static_cast<std::size_t>(chunk);
  }

  // The steps that `draft`, step number `index`, must wait for, sorted.
  void add(const Draft& draft, std::uint32_t index, std::vector<std::uint32_t>& out) {
    out.clear();
    const bool reads_source = draft.verb != Verb::kRecv;
    const bool writes = draft.verb != Verb::kSend;
    const bool reads_target = draft.verb == Verb::kReduce;
    const auto wait = [&out](std::span<const std::uint32_t> steps) {
      out.insert(out.end(), steps.begin(), steps.end());
    };
    for (int i = 0; i < draft.chunks; ++i) {
      if (reads_source) wait(log.before_read(place(draft.source, draft.source_chunk + i)));
      if (reads_target) wait(log.before_read(place(draft.target, draft.target_chunk + i)));
      if (writes) wait(log.before_write(place(draft.target, draft.target_chunk + i)));
    }
    for (int i = 0; i < draft.chunks; ++i) {
      if (reads_source) log.note_read(place(draft.source, draft.source_chunk + i), index);
      if (writes) log.note_write(place(draft.target, draft.target_chunk + i), index);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
  }
};

// Numbers the scratch slots that a program uses: by chunk, values before asides, so that slots of
// consecutive chunks are consecutive.
class Builder::Scratch {
 public:
  Scratch(const std::vector<Draft>& drafts, int chunks, std::vector<std::uint32_t>& scratch_chunk)
      : chunks_(static_cast<std::size_t>(chunks)), number_(chunks_ * 2, 0) {
    std::vector<bool> used(chunks_ * 2, false);
    for (const Draft& draft : drafts) {
      for (int i = 0; i < draft.chunks; ++i) {
        if (is_scratch(draft.source)) used[at(draft.source, draft.source_chunk + i)] = true;
        if (is_scratch(draft.target)) used[at(draft.target, draft.target_chunk + i)] = true;
      }
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      number_[i] = static_cast<std::uint32_t>(scratch_chunk.size());
      scratch_chunk.push_back(static_cast<std::uint32_t>(i % chunks_));
    }
  }

  [[nodiscard]] Slot slot(Where where, int chunk) const {
    if (is_scratch(where)) return Slot::of(Space::kScratch, number_[at(where, chunk)]);
    return Slot::of(where == Where::kInput ? Space::kInput : Space::kOutput,
                    static_cast<std::uint32_t>(chunk));
  }

 private:
  static bool is_scratch(Where where) { return where == Where::kScratch || where == Where::kAside; }
  [[nodiscard]] std::size_t at(Where where, int chunk) const {
    return (where == Where::kAside ? chunks_ : 0) + static_cast<std::size_t>(chunk);
  }
  std::size_t chunks_;
  std::vector<std::uint32_t> number_;
};

Builder::Builder(const Contract& contract, std::optional<int> keep)
    : contract_(contract), keep_(keep), chunks_(contract.chunks()) {
  CHECK_GE(contract.world, 1);
  CHECK_LE(contract.world, kMaxWorld);
  CHECK_GE(chunks_, 1);
  CHECK_LE(chunks_, kMaxChunks);
  where_.resize(static_cast<std::size_t>(contract.world) * static_cast<std::size_t>(chunks_),
                Where::kNone);
  drafts_.resize(static_cast<std::size_t>(contract.world));
  for (int rank = 0; rank < contract.world; ++rank) {
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      if (contract_.has_input(rank, chunk)) where(rank, chunk) = Where::kInput;
    }
  }
}

Builder::Builder(Builder& whole, const Contract& contract, Part part)
    : contract_(contract), whole_(&whole), part_(std::move(part)), chunks_(contract.chunks()) {
  CHECK_EQ(part_.ranks.size(), static_cast<std::size_t>(contract.world));
  CHECK_LE(part_.chunk + chunks_ * part_.scale, whole.chunks());
}

Builder::~Builder() = default;

// Of a move that does not wrap.
Move Builder::in_whole(const Move& move) const {
  Move out = move;
  out.chunk = part_.chunk + move.chunk * part_.scale;
  out.chunks = move.chunks * part_.scale;
  out.from = part_.ranks[static_cast<std::size_t>(move.from)];
  out.to = part_.ranks[static_cast<std::size_t>(move.to)];
  return out;
}

namespace {

// The parts of consecutive chunks, in the order of the list.
std::vector<Move> parts_of(const Scattered& move) {
  std::vector<Move> parts;
  for (const int chunk : move.chunks) {
    if (!parts.empty() && parts.back().chunk + parts.back().chunks == chunk) {
      ++parts.back().chunks;
    } else {
      parts.push_back(
          {.chunk = chunk, .chunks = 1, .from = move.from, .to = move.to, .lane = move.lane});
    }
  }
  return parts;
}

}  // namespace

void Builder::copy(const Move& move) { move_pieces(move, End::kCopy); }

void Builder::reduce(const Move& move) { move_pieces(move, End::kReduce); }

void Builder::copy(const Scattered& move) { move_parts(parts_of(move), End::kCopy); }

void Builder::reduce(const Scattered& move) { move_parts(parts_of(move), End::kReduce); }

void Builder::exchange(const std::vector<Relay>& relays) {
  CHECK(whole_ == nullptr);
  for (const Relay& relay : relays) emit_placed(relay.from, relay.to, Verb::kSend, relay);
  for (const Relay& relay : relays) emit_placed(relay.to, relay.from, Verb::kRecv, relay);
}

void Builder::settle(int rank, const Relay::Item& item) {
  CHECK(whole_ == nullptr);
  emit_placed(rank, rank, Verb::kCopy, {.items = {item}, .from = rank, .to = rank});
}

Builder::Message Builder::post(const Move& move) {
  if (whole_ != nullptr) {
    (void)whole_->post(in_whole(move));
    return {move};
  }
  CHECK_EQ(run_length(move, End::kAsideCopy, move.chunk, move.chunks), move.chunks);
  emit_send(move, false);
  ++posted_;
  return {move};
}

void Builder::receive(const Message& message) {
  if (whole_ != nullptr) return whole_->receive({in_whole(message.move)});
  --posted_;
  emit_receive(message.move, End::kCopy, false);
}

void Builder::receive_reduce(const Message& message) {
  if (whole_ != nullptr) return whole_->receive_reduce({in_whole(message.move)});
  --posted_;
  emit_receive(message.move, End::kReduce, false);
}

void Builder::receive_aside(const Message& message) {
  if (whole_ != nullptr) return whole_->receive_aside({in_whole(message.move)});
  --posted_;
  const Move& move = message.move;
  // A sum that was folded into the aside and is the rank's value makes room.
  for (int i = move.chunk; i < move.chunk + move.chunks; ++i) {
    if (where(move.to, i) != Where::kAside) continue;
    where(move.to, i) = home(move.to, i, 1);
    emit_copy(move.to, i, 1, Where::kAside, where(move.to, i));
  }
  emit_receive(move, End::kAsideCopy, false);
}

void Builder::reduce_aside(const Message& message) {
  if (whole_ != nullptr) return whole_->reduce_aside({in_whole(message.move)});
  --posted_;
  emit_receive(message.move, End::kAsideReduce, false);
}

// The sum goes where something may be written: into the aside while the value is still the caller's
// input.
void Builder::fold(int rank, int chunk, int chunks) {
  if (whole_ != nullptr) {
    return whole_->fold(part_.ranks[static_cast<std::size_t>(rank)],
                        part_.chunk + chunk * part_.scale, chunks * part_.scale);
  }
  for (int i = chunk; i < chunk + chunks; ++i) {
    Where& value = where(rank, i);
    CHECK(value != Where::kNone);
    const bool into_aside = value == Where::kInput;
    const Draft draft = {Verb::kReduce,
                         0,
                         false,
                         static_cast<std::uint16_t>(rank),
                         1,
                         into_aside ? value : Where::kAside,
                         into_aside ? Where::kAside : value,
                         i,
                         i};
    if (into_aside) value = Where::kAside;
    if (!kept(rank)) continue;
    std::vector<Draft>& drafts = drafts_[static_cast<std::size_t>(rank)];
    const bool extends = i != chunk && drafts.back().source == draft.source;
    if (extends) {
      ++drafts.back().chunks;
    } else {
      drafts.push_back(draft);
    }
  }
}

Builder::Where& Builder::where(int rank, int chunk) {
  return where_[static_cast<std::size_t>(rank) * static_cast<std::size_t>(chunks_) +
                static_cast<std::size_t>(chunk)];
}

Builder::Where Builder::home(int rank, int chunk, int chunks) const {
  for (int i = chunk; i < chunk + chunks; ++i) {
    if (!contract_.has_output(rank, i)) return Where::kScratch;
  }
  return Where::kOutput;
}

void Builder::move_pieces(const Move& move, End end) {
  CHECK_GE(move.chunk, 0);
  CHECK_LT(move.chunk, chunks_);
  CHECK_GE(move.chunks, 1);
  CHECK_LE(move.chunks, chunks_);
  std::vector<Move> parts = {move};
  parts[0].chunks = std::min(move.chunks, chunks_ - move.chunk);
  if (parts[0].chunks < move.chunks) {
    parts.push_back(move);
    parts[1].chunk = 0;
    parts[1].chunks = move.chunks - parts[0].chunks;
  }
  move_parts(parts, end);
}

// One message; no part wraps.
void Builder::move_parts(const std::vector<Move>& parts, End end) {
  if (whole_ != nullptr) {
    std::vector<Move> translated;
    for (const Move& part : parts) translated.push_back(in_whole(part));
    return whole_->move_parts(translated, end);
  }
  for (const Move& part : parts) gather_in_one_space(part.from, part.chunk, part.chunks);
  bool joined = false;
  for (const Move& part : parts) {
    for (Move piece = part; piece.chunk < part.chunk + part.chunks; piece.chunk += piece.chunks) {
      piece.chunks = run_length(part, end, piece.chunk, part.chunk + part.chunks - piece.chunk);
      emit_send(piece, joined);
      emit_receive(piece, end, joined);
      joined = true;
    }
  }
}

// One end of a message between stated places, cut where either end is not consecutive.
void Builder::emit_placed(int rank, int peer, Verb verb, const Relay& relay) {
  constexpr Where kWhere[] = {Where::kInput, Where::kOutput, Where::kScratch};
  const auto where_of = [&](const Place& place) {
    return place.chunk < chunks_ ? kWhere[static_cast<std::size_t>(place.space)] : Where::kAside;
  };
  const auto follows = [&](const Place& next, const Place& place, int distance) {
    return next.space == place.space && next.chunk == place.chunk + distance &&
           next.chunk != chunks_;
  };
  for (std::size_t first = 0; first < relay.items.size();) {
    const auto& [source, target] = relay.items[first];
    int length = 1;
    for (std::size_t next = first + 1;
         next < relay.items.size() && follows(relay.items[next].source, source, length) &&
         follows(relay.items[next].target, target, length);
         ++next) {
      ++length;
    }
    if (verb != Verb::kSend && target.space == Space::kOutput) {
      for (int i = 0; i < length; ++i) where(rank, target.chunk + i) = Where::kOutput;
    }
    if (kept(rank)) {
      const Place& read = verb == Verb::kRecv ? target : source;
      const Place& written = verb == Verb::kSend ? source : target;
      drafts_[static_cast<std::size_t>(rank)].push_back(
          {verb, 0, first > 0, static_cast<std::uint16_t>(peer), static_cast<std::uint16_t>(length),
           where_of(read), where_of(written), read.chunk % chunks_, written.chunk % chunks_});
    }
    first += static_cast<std::size_t>(length);
  }
}

// The values of a range that are still Input move to the space of the others, if that is one.
void Builder::gather_in_one_space(int rank, int chunk, int chunks) {
  Where space = Where::kInput;
  bool mixed = false;
  for (int i = chunk; i < chunk + chunks; ++i) {
    const Where value = where(rank, i);
    if (value == Where::kInput) continue;
    mixed = mixed || (space != Where::kInput && value != space);
    space = value;
  }
  if (mixed || (space != Where::kOutput && space != Where::kScratch)) return;
  for (int i = chunk; i < chunk + chunks; ++i) {
    if (where(rank, i) != Where::kInput) continue;
    if (space == Where::kOutput && home(rank, i, 1) != Where::kOutput) continue;
    emit_copy(rank, i, 1, Where::kInput, space);
    where(rank, i) = space;
  }
}

// How many chunks from `chunk` on, at most `limit`, are consecutive on both ends.
int Builder::run_length(const Move& move, End end, int chunk, int limit) {
  const auto same = [&](int a, int b) {
    return where(move.from, a) == where(move.from, b) &&
           (end != End::kReduce || where(move.to, a) == where(move.to, b));
  };
  int length = 1;
  while (length < limit && chunk + length < chunks_ && same(chunk, chunk + length)) ++length;
  return length;
}

void Builder::emit_send(const Move& piece, bool joined) {
  CHECK_NE(piece.from, piece.to);
  CHECK_LE(piece.lane, kMaxLane);
  const Where source = where(piece.from, piece.chunk);
  CHECK(source != Where::kNone);
  if (!kept(piece.from)) return;
  drafts_[static_cast<std::size_t>(piece.from)].push_back(
      {Verb::kSend, static_cast<std::uint8_t>(piece.lane), joined,
       static_cast<std::uint16_t>(piece.to), static_cast<std::uint16_t>(piece.chunks), source,
       source, piece.chunk, piece.chunk});
}

void Builder::emit_receive(const Move& piece, End end, bool joined) {
  const bool aside = end == End::kAsideCopy || end == End::kAsideReduce;
  const bool reduces = end == End::kReduce || end == End::kAsideReduce;
  const Where value = where(piece.to, piece.chunk);
  const Where target = aside ? Where::kAside : home(piece.to, piece.chunk, piece.chunks);
  const Where source = !reduces ? target : aside ? Where::kAside : value;
  CHECK(source != Where::kNone);
  if (!aside) {
    for (int i = 0; i < piece.chunks; ++i) where(piece.to, piece.chunk + i) = target;
  }
  if (!kept(piece.to)) return;
  drafts_[static_cast<std::size_t>(piece.to)].push_back(
      {reduces ? Verb::kRecvReduce : Verb::kRecv, static_cast<std::uint8_t>(piece.lane), joined,
       static_cast<std::uint16_t>(piece.from), static_cast<std::uint16_t>(piece.chunks), source,
       target, piece.chunk, piece.chunk});
}

void Builder::emit_copy(int rank, int chunk, int chunks, Where source, Where target) {
  if (!kept(rank)) return;
  drafts_[static_cast<std::size_t>(rank)].push_back(
      {Verb::kCopy, 0, false, static_cast<std::uint16_t>(rank), static_cast<std::uint16_t>(chunks),
       source, target, chunk, chunk});
}

void Builder::add_final_copies(int rank) {
  for (int chunk = 0; chunk < chunks_;) {
    const Where source = where(rank, chunk);
    int end = chunk + 1;
    if (contract_.has_output(rank, chunk) && source != Where::kOutput && source != Where::kNone) {
      while (end < chunks_ && contract_.has_output(rank, end) && where(rank, end) == source) ++end;
      emit_copy(rank, chunk, end - chunk, source, Where::kOutput);
    }
    chunk = end;
  }
}

Schedule Builder::finish(std::string name) {
  CHECK(whole_ == nullptr);
  CHECK_EQ(posted_, 0);
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.contract = contract_;
  schedule.segments = 0;  // left to the executor
  schedule.programs.resize(drafts_.size());
  Dependency memory(chunks_);
  for (int rank = 0; rank < world(); ++rank) {
    if (!kept(rank)) continue;
    const auto at = static_cast<std::size_t>(rank);
    add_final_copies(rank);
    schedule.programs[at] = lower(drafts_[at], memory);
    drafts_[at] = {};
  }
  return schedule;
}

// A step need not wait for what another of its waits has waited for.
void Builder::drop_implied(Waits& waits) {
  std::vector<std::uint32_t> implied_for(waits.size(), ~0U);
  for (std::uint32_t step = static_cast<std::uint32_t>(waits.size()); step-- > 0;) {
    for (const std::uint32_t wait : waits[step]) {
      for (const std::uint32_t earlier : waits[wait]) implied_for[earlier] = step;
    }
    std::erase_if(waits[step], [&](std::uint32_t wait) { return implied_for[wait] == step; });
  }
}

// Invariant 3 of the header. Whatever a receive waits for stands before it in the order of the
// calls, so when no send or copy can start, the next receive can be placed. The parts of a joined
// message are placed together.
std::vector<std::uint32_t> Builder::issue_order(const std::vector<Draft>& drafts,
                                                const Waits& waits) {
  std::vector<std::uint32_t> sends;
  std::vector<std::uint32_t> copies;
  std::vector<std::uint32_t> others;
  for (std::uint32_t i = 0; i < drafts.size(); ++i) {
    const Verb verb = drafts[i].verb;
    (verb == Verb::kSend ? sends : verb == Verb::kCopy ? copies : others).push_back(i);
  }
  std::vector<bool> placed(drafts.size(), false);
  std::vector<std::uint32_t> order;
  const auto place = [&](std::uint32_t index) {
    placed[index] = true;
    order.push_back(index);
  };
  const auto ready = [&](std::uint32_t index) {
    return std::all_of(waits[index].begin(), waits[index].end(),
                       [&](std::uint32_t wait) { return placed[wait]; });
  };
  // One past the last part of the message that starts at list[first].
  const auto message_end = [&](const std::vector<std::uint32_t>& list, std::size_t first) {
    std::size_t end = first + 1;
    while (end < list.size() && drafts[list[end]].joined) ++end;
    return end;
  };
  std::size_t send = 0;
  std::size_t other = 0;
  while (order.size() < drafts.size()) {
    const std::size_t send_end = send < sends.size() ? message_end(sends, send) : send;
    if (send < send_end &&
        std::all_of(sends.begin() + static_cast<std::ptrdiff_t>(send),
                    sends.begin() + static_cast<std::ptrdiff_t>(send_end), ready)) {
      while (send < send_end) place(sends[send++]);
      continue;
    }
    const auto copy = std::find_if(copies.begin(), copies.end(), ready);
    if (copy != copies.end()) {
      place(*copy);
      copies.erase(copy);
      continue;
    }
    CHECK_LT(other, others.size());
    for (const std::size_t end = message_end(others, other); other < end;) place(others[other++]);
  }
  return order;
}

Program Builder::lower(const std::vector<Draft>& drafts, Dependency& memory) const {
  memory.log.reset();
  Waits waits(drafts.size());
  for (std::uint32_t i = 0; i < drafts.size(); ++i) memory.add(drafts[i], i, waits[i]);
  drop_implied(waits);
  const std::vector<std::uint32_t> order = issue_order(drafts, waits);
  std::vector<std::uint32_t> position(drafts.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) position[order[i]] = i;

  Program program;
  const Scratch scratch(drafts, chunks_, program.scratch_chunk);
  for (const std::uint32_t index : order) {
    const Draft& draft = drafts[index];
    std::vector<std::uint32_t>& wait = waits[index];
    for (std::uint32_t& step : wait) step = position[step];
    std::sort(wait.begin(), wait.end());
    CHECK_LE(wait.size(), std::size_t{0xffff});
    Step step{};
    step.verb = draft.verb;
    step.lane = draft.lane & kMaxLane;
    step.joined = draft.joined ? 1 : 0;
    step.peer = draft.peer;
    step.source = scratch.slot(draft.source, draft.source_chunk);
    step.target = scratch.slot(draft.target, draft.target_chunk);
    step.chunks = draft.chunks;
    step.dependences = static_cast<std::uint16_t>(wait.size());
    program.steps.push_back(step);
    program.dependences.insert(program.dependences.end(), wait.begin(), wait.end());
  }
  return program;
}

}  // namespace sinew::sched
