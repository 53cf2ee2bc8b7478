// Roster: the table, in memory that all ranks map, of who is here and what each one is doing. A
// waiting rank reads it to say who is missing and where everyone stands; a failing rank writes the
// one error that wakes all. It is a side path: messages do
// not depend on it.
//
// Never does: wait for anybody.
// Threads: each rank writes only its own row; poison() is for any rank; readers are any ranks.
// Invariants
//   1. Records of a row are numbered 1, 2, ...; the last kRecords of them can be read.
//   2. Poison is written at most once, by one rank; it never goes away.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "comm/call.h"
#include "comm/error.h"
#include "comm/wait.h"

namespace sinew::comm {

class Roster {
 public:
  // Bytes of shared, zeroed memory that a roster of `world` ranks needs.
  [[nodiscard]] static std::size_t size_bytes(int world);
  // upper: the roster of the communicator this one was split from, or null. A failure in one is a
  // failure in all of them, since a rank that left one will not come to the others.
  Roster(std::byte* memory, int rank, int world, Roster* upper);

  // Own row.
  // Before the first call. origin: this rank's number in the communicator that everything was split
  // from.
  void join(int origin);
  enum class Leaving : std::uint32_t { kPresent = 0, kDone = 1, kThrew = 2 };
  void leave(Leaving how);
  // signature: signature_of(packed, count).
  void begin(std::uint64_t number, std::uint64_t packed, std::int64_t count,
             std::uint32_t signature) {
    Record& record = own_->records[number % kRecords];
    record.packed.store(packed, std::memory_order_relaxed);
    record.count.store(count, std::memory_order_relaxed);
    // Meets the acquire in call_of, whose reader also checks that the three words belong together.
    record.flag.store(flag_of(number, signature), std::memory_order_release);
    own_->begun.store(number, std::memory_order_release);
  }
  // A message this rank sends, so that a receiver that expected another one can name it.
  void note_send(std::uint64_t flag, const CallInfo& call);
  void end(std::uint64_t number) { own_->ended.store(number, std::memory_order_relaxed); }
  // What a slow wait waits for; for the peers' reports only.
  void waiting(int peer, const CallInfo& call);

  // Ranks on other hosts do not map this table: their rows here are copies that the network brings
  // (network.h), and any rank of this host may put them in.
  static constexpr std::size_t kRowBytes = 840;
  void place(int rank, int origin) { rows_[rank].origin.store(origin, std::memory_order_relaxed); }
  void copy_row(std::byte* target) const;  // the own one, [kRowBytes]
  void adopt_row(int rank, const std::byte* source);
  void adopt_leaving(int rank, Leaving how);
  // Poison that `rank` wrote.
  void adopt_poison(int rank, Cause cause, int peer, const std::string& text);

  // Reading a peer's own memory, which it frees when it gives up: between enter and leave_memory no
  // rank that failed returns to its caller. False: somebody failed, read nothing.
  [[nodiscard]] bool enter_memory();
  void leave_memory();
  // After poisoned(): returns when no living rank reads this one's memory any more. A rank reads
  // one pass at a time, so this takes as long as the longest pass.
  void await_readers(double timeout_s) const;

  // Anyone's row.
  [[nodiscard]] Doorbell& doorbell(int rank) { return rows_[rank].doorbell; }
  [[nodiscard]] std::uint64_t begun(int rank) const {
    return rows_[rank].begun.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::optional<CallInfo> call_of(int rank, std::uint64_t number) const;
  [[nodiscard]] std::optional<CallInfo> sent_call(int rank, std::uint64_t flag) const;
  // A rank whose process is gone or that left by an exception, or that left cleanly although this
  // rank waits for it; -1: none. Looks at the operating system: for waits of milliseconds.
  [[nodiscard]] int lost_rank(int waits_for, std::string* how) const;
  // "rank 1", or "rank 1 (world rank 5)" in a split communicator.
  [[nodiscard]] std::string name_of(int rank) const;
  // One clause per rank: "rank 0 is in call 7 (all_reduce/ring of 8 f32, sum); rank 1 never made a
  // call".
  [[nodiscard]] std::string stand() const;

  // The earliest call still on record in which two ranks differ: "call 7: rank 0 called ...; ranks
  // 1, 2 called ...".
  [[nodiscard]] std::optional<std::string> disagreement() const;

  // The first poison wins; `text` then is what every rank throws. Wakes sleepers.
  void poison(Cause cause, int peer, const std::string& text);
  [[nodiscard]] bool poisoned() const {
    // Meets the stores in poison(); sequentially consistent for enter_memory.
    return poison_->state.load(std::memory_order_seq_cst) != kClean ||
           (upper_ != nullptr && upper_->poisoned());
  }
  // After poisoned(): the error as this rank throws it.
  [[nodiscard]] Error poison_error() const;

 private:
  static constexpr int kRecords = 16;
  enum : std::uint32_t { kClean = 0, kWriting = 1, kWritten = 2 };

  struct Record {
    std::atomic<std::uint64_t> flag;
    std::atomic<std::uint64_t> packed;
    std::atomic<std::int64_t> count;
    std::uint64_t unused;
  };
  struct alignas(64) Row {
    Doorbell doorbell;
    alignas(64) std::atomic<std::uint64_t> begun;
    std::atomic<std::uint64_t> ended;
    std::atomic<std::uint64_t> wait_packed;
    std::atomic<std::int64_t> wait_count;
    std::atomic<std::int32_t> wait_peer;  // plus one; 0: waits for nobody
    std::atomic<std::uint32_t> leaving;
    // Of the topmost roster only: how many of the rank's communicators, which may be used by
    // different threads, are between enter_memory and leave_memory.
    std::atomic<std::uint32_t> reading;
    std::atomic<std::int32_t> pid;
    std::atomic<std::int32_t> origin;
    std::atomic<std::uint64_t> start_time;
    alignas(64) Record records[kRecords];
    alignas(64) Record sends[kRecords];
  };
  struct alignas(64) Poison {
    std::atomic<std::uint32_t> state;
    std::int32_t rank;
    std::int32_t peer;
    std::uint32_t cause;
    char text[1008];
  };

  // The roster of the communicator that everything was split from, and this rank's number there.
  [[nodiscard]] const Roster& top() const { return upper_ != nullptr ? upper_->top() : *this; }
  // Whether the rank's process is gone; false when that cannot be known or it is this one.
  [[nodiscard]] static bool is_dead(const Row& row);
  static void write(Record& record, std::uint64_t flag, const CallInfo& call);
  [[nodiscard]] std::string stand_of(int rank) const;

  int rank_;
  int world_;
  Roster* upper_;
  Poison* poison_;
  Row* rows_;
  Row* own_;
  std::uint64_t sends_ = 0;
};

}  // namespace sinew::comm
