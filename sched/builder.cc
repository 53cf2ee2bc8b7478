#include "sched/builder.h"

#include <algorithm>
#include <utility>

#include "sched/base/check.h"
#include "sched/base/partition.h"

namespace sinew::sched {

struct Builder::Draft {
  Verb verb;
  std::uint8_t lane;
  std::uint16_t peer;
  std::uint16_t chunks;
  Where source;
  Where target;
  int source_chunk;
  int target_chunk;
};

namespace {

constexpr std::uint32_t kNoSlot = ~0U;

}  // namespace

// Per place (Input and Output of a chunk are one, its scratch and its aside two more): the last
// writer and the readers since. Kept between programs so that nothing is allocated per step.
struct Builder::Dependency {
  static constexpr std::uint32_t kNobody = ~0U;
  int chunks;
  std::vector<std::uint32_t> writer;
  std::vector<std::vector<std::uint32_t>> readers;
  std::vector<int> touched;

  explicit Dependency(int chunk_count)
      : chunks(chunk_count),
        writer(static_cast<std::size_t>(chunk_count) * 3, kNobody),
        readers(static_cast<std::size_t>(chunk_count) * 3) {}

  void reset() {
    for (const int place : touched) {
      writer[static_cast<std::size_t>(place)] = kNobody;
      readers[static_cast<std::size_t>(place)].clear();
    }
    touched.clear();
  }

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
    for (int i = 0; i < draft.chunks; ++i) {
      if (reads_source) read(place(draft.source, draft.source_chunk + i), out);
      if (reads_target) read(place(draft.target, draft.target_chunk + i), out);
      if (writes) overwrite(place(draft.target, draft.target_chunk + i), out);
    }
    for (int i = 0; i < draft.chunks; ++i) {
      if (reads_source) note_read(place(draft.source, draft.source_chunk + i), index);
      if (writes) note_write(place(draft.target, draft.target_chunk + i), index);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
  }

 private:
  void read(std::size_t at, std::vector<std::uint32_t>& out) const {
    if (writer[at] != kNobody) out.push_back(writer[at]);
  }
  // The readers since the last write already wait for its writer.
  void overwrite(std::size_t at, std::vector<std::uint32_t>& out) const {
    if (readers[at].empty()) return read(at, out);
    out.insert(out.end(), readers[at].begin(), readers[at].end());
  }
  void note_read(std::size_t at, std::uint32_t index) {
    readers[at].push_back(index);
    touched.push_back(static_cast<int>(at));
  }
  void note_write(std::size_t at, std::uint32_t index) {
    writer[at] = index;
    readers[at].clear();
    touched.push_back(static_cast<int>(at));
  }
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

Builder::~Builder() = default;

void Builder::copy(const Move& move) { move_pieces(move, End::kCopy); }

void Builder::reduce(const Move& move) { move_pieces(move, End::kReduce); }

Builder::Message Builder::post(const Move& move) {
  CHECK_EQ(run_length(move, End::kAsideCopy, move.chunk, move.chunks), move.chunks);
  emit_send(move);
  ++posted_;
  return {move};
}

void Builder::receive(const Message& message) {
  --posted_;
  emit_receive(message.move, End::kCopy);
}

void Builder::receive_reduce(const Message& message) {
  --posted_;
  emit_receive(message.move, End::kReduce);
}

void Builder::receive_aside(const Message& message) {
  --posted_;
  emit_receive(message.move, End::kAsideCopy);
}

void Builder::reduce_aside(const Message& message) {
  --posted_;
  emit_receive(message.move, End::kAsideReduce);
}

// The sum goes where something may be written: into the aside while the value is still the caller's
// input.
void Builder::fold(int rank, int chunk, int chunks) {
  for (int i = chunk; i < chunk + chunks; ++i) {
    Where& value = where(rank, i);
    CHECK(value != Where::kNone);
    const bool into_aside = value == Where::kInput;
    const Draft draft = {Verb::kReduce,
                         0,
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

Builder::Where Builder::home(int rank, int chunk) const {
  return contract_.has_output(rank, chunk) ? Where::kOutput : Where::kScratch;
}

void Builder::move_pieces(const Move& move, End end) {
  CHECK_GE(move.chunk, 0);
  CHECK_LT(move.chunk, chunks_);
  CHECK_LE(move.chunks, chunks_);
  int chunk = move.chunk;
  int left = move.chunks;
  while (left > 0) {
    const int length = run_length(move, end, chunk, left);
    Move piece = move;
    piece.chunk = chunk;
    piece.chunks = length;
    emit_send(piece);
    emit_receive(piece, end);
    chunk = (chunk + length) % chunks_;
    left -= length;
  }
}

// How many chunks from `chunk` on, at most `limit`, are consecutive on both ends.
int Builder::run_length(const Move& move, End end, int chunk, int limit) {
  const bool to_value = end == End::kCopy || end == End::kReduce;
  const auto same = [&](int a, int b) {
    return where(move.from, a) == where(move.from, b) &&
           (!to_value || home(move.to, a) == home(move.to, b)) &&
           (end != End::kReduce || where(move.to, a) == where(move.to, b));
  };
  int length = 1;
  while (length < limit && chunk + length < chunks_ && same(chunk, chunk + length)) ++length;
  return length;
}

void Builder::emit_send(const Move& piece) {
  CHECK_NE(piece.from, piece.to);
  const Where source = where(piece.from, piece.chunk);
  CHECK(source != Where::kNone);
  if (!kept(piece.from)) return;
  drafts_[static_cast<std::size_t>(piece.from)].push_back(
      {Verb::kSend, static_cast<std::uint8_t>(piece.lane), static_cast<std::uint16_t>(piece.to),
       static_cast<std::uint16_t>(piece.chunks), source, source, piece.chunk, piece.chunk});
}

void Builder::emit_receive(const Move& piece, End end) {
  const bool aside = end == End::kAsideCopy || end == End::kAsideReduce;
  const bool reduces = end == End::kReduce || end == End::kAsideReduce;
  const Where value = where(piece.to, piece.chunk);
  const Where target = aside ? Where::kAside : home(piece.to, piece.chunk);
  const Where source = !reduces ? target : aside ? Where::kAside : value;
  CHECK(source != Where::kNone);
  if (!aside) {
    for (int i = 0; i < piece.chunks; ++i) where(piece.to, piece.chunk + i) = target;
  }
  if (!kept(piece.to)) return;
  drafts_[static_cast<std::size_t>(piece.to)].push_back(
      {reduces ? Verb::kRecvReduce : Verb::kRecv, static_cast<std::uint8_t>(piece.lane),
       static_cast<std::uint16_t>(piece.from), static_cast<std::uint16_t>(piece.chunks), source,
       target, piece.chunk, piece.chunk});
}

void Builder::add_final_copies(int rank) {
  std::vector<Draft>& drafts = drafts_[static_cast<std::size_t>(rank)];
  for (int chunk = 0; chunk < chunks_;) {
    const Where source = where(rank, chunk);
    if (!contract_.has_output(rank, chunk) || source == Where::kOutput || source == Where::kNone) {
      ++chunk;
      continue;
    }
    int end = chunk;
    while (end < chunks_ && contract_.has_output(rank, end) && where(rank, end) == source) {
      where(rank, end) = Where::kOutput;
      ++end;
    }
    drafts.push_back({Verb::kCopy, 0, static_cast<std::uint16_t>(rank),
                      static_cast<std::uint16_t>(end - chunk), source, Where::kOutput, chunk,
                      chunk});
    chunk = end;
  }
}

Schedule Builder::finish(std::string name) {
  CHECK_EQ(posted_, 0);
  Schedule schedule;
  schedule.name = std::move(name);
  schedule.contract = contract_;
  schedule.segments = segments_;
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

// Scratch slots of one program, numbered so that consecutive chunks of one kind lie consecutively.
Program Builder::lower(std::vector<Draft>& drafts, Dependency& memory) const {
  Program program;
  const auto chunk_count = static_cast<std::size_t>(chunks_);
  std::vector<std::uint32_t> slot_of(chunk_count * 2, kNoSlot);  // [kScratch or kAside][chunk]
  const auto entry = [&](Where where, int chunk) -> std::uint32_t& {
    return slot_of[(where == Where::kAside ? chunk_count : 0) + static_cast<std::size_t>(chunk)];
  };
  const auto note = [&](Where where, int chunk, int chunks) {
    if (where != Where::kScratch && where != Where::kAside) return;
    for (int i = chunk; i < chunk + chunks; ++i) entry(where, i) = 0;
  };
  for (const Draft& draft : drafts) {
    note(draft.source, draft.source_chunk, draft.chunks);
    note(draft.target, draft.target_chunk, draft.chunks);
  }
  for (std::size_t i = 0; i < slot_of.size(); ++i) {
    if (slot_of[i] == kNoSlot) continue;
    slot_of[i] = static_cast<std::uint32_t>(program.scratch_chunk.size());
    program.scratch_chunk.push_back(static_cast<std::uint32_t>(i % chunk_count));
  }
  const auto slot = [&](Where where, int chunk) {
    switch (where) {
      case Where::kInput:
        return Slot::of(Space::kInput, static_cast<std::uint32_t>(chunk));
      case Where::kOutput:
        return Slot::of(Space::kOutput, static_cast<std::uint32_t>(chunk));
      case Where::kScratch:
      case Where::kAside:
        return Slot::of(Space::kScratch, entry(where, chunk));
      case Where::kNone:
        break;
    }
    CHECK(where != Where::kNone);
    return Slot{};
  };
  std::vector<std::uint32_t> waits;
  memory.reset();
  for (const Draft& draft : drafts) {
    memory.add(draft, static_cast<std::uint32_t>(program.steps.size()), waits);
    program.steps.push_back({draft.verb, draft.lane, draft.peer,
                             slot(draft.source, draft.source_chunk),
                             slot(draft.target, draft.target_chunk), draft.chunks,
                             static_cast<std::uint16_t>(waits.size())});
    program.dependences.insert(program.dependences.end(), waits.begin(), waits.end());
  }
  return program;
}

}  // namespace sinew::sched
