#include "comm/roster.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "comm/process.h"
#include "sched/base/check.h"

namespace sinew::comm {

namespace {

// To look whether a process lives costs tens of microseconds, as much as this many yields.
constexpr int kTriesPerLook = 100;

}  // namespace

std::size_t Roster::size_bytes(int world) {
  return sizeof(Poison) + sizeof(Row) * static_cast<std::size_t>(world);
}

Roster::Roster(std::byte* memory, int rank, int world, Roster* upper)
    : rank_(rank), world_(world), upper_(upper) {
  // Zeroed memory is a valid initial state of every member: the atomics are lock-free integers.
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                std::atomic<std::uint32_t>::is_always_lock_free);
  static_assert(sizeof(Record) == 32);
  poison_ = std::launder(reinterpret_cast<Poison*>(memory));
  rows_ = std::launder(reinterpret_cast<Row*>(memory + sizeof(Poison)));
  own_ = &rows_[rank];
}

void Roster::join(int origin) {
  own_->origin.store(origin, std::memory_order_relaxed);
  const int pid = getpid();
  own_->start_time.store(process_start_time(pid), std::memory_order_relaxed);
  own_->pid.store(pid, std::memory_order_release);  // meets the acquire in lost_rank
}

void Roster::leave(Leaving how) {
  own_->leaving.store(static_cast<std::uint32_t>(how),
                      std::memory_order_release);  // meets the acquire in lost_rank
  for (int peer = 0; peer < world_; ++peer) rows_[peer].doorbell.ring();
}

void Roster::write(Record& record, std::uint64_t flag, const CallInfo& call) {
  record.packed.store(call.packed(), std::memory_order_relaxed);
  record.count.store(call.count, std::memory_order_relaxed);
  record.flag.store(flag,
                    std::memory_order_release);  // meets the acquires in call_of and sent_call
}

void Roster::note_send(std::uint64_t flag, const CallInfo& call) {
  write(own_->sends[sends_++ % kRecords], flag, call);
}

void Roster::waiting(int peer, const CallInfo& call) {
  own_->wait_packed.store(call.packed(), std::memory_order_relaxed);
  own_->wait_count.store(call.count, std::memory_order_relaxed);
  own_->wait_peer.store(peer + 1, std::memory_order_relaxed);
}

std::optional<CallInfo> Roster::call_of(int rank, std::uint64_t number) const {
  const Record& record = rows_[rank].records[number % kRecords];
  const std::uint64_t flag =
      record.flag.load(std::memory_order_acquire);  // meets the release in begin
  const std::uint64_t packed = record.packed.load(std::memory_order_relaxed);
  const std::int64_t count = record.count.load(std::memory_order_relaxed);
  if (number == 0 || flag != flag_of(number, signature_of(packed, count))) return std::nullopt;
  return CallInfo::unpack(packed, count);
}

std::optional<CallInfo> Roster::sent_call(int rank, std::uint64_t flag) const {
  for (const Record& record : rows_[rank].sends) {
    if (record.flag.load(std::memory_order_acquire) != flag)
      continue;  // meets the release in write
    const std::uint64_t packed = record.packed.load(std::memory_order_relaxed);
    const std::int64_t count = record.count.load(std::memory_order_relaxed);
    if (signature_of(packed, count) == static_cast<std::uint32_t>(flag))
      return CallInfo::unpack(packed, count);
  }
  return std::nullopt;
}

namespace {

// A row on its way to another host. The flag of a record is whole or belongs to no call, as in the
// table.
struct RecordCopy {
  std::uint64_t flag;
  std::uint64_t packed;
  std::int64_t count;
};
struct RowCopy {
  std::uint64_t begun;
  std::uint64_t ended;
  std::uint64_t wait_packed;
  std::int64_t wait_count;
  std::int64_t wait_peer;
  std::uint64_t unused[4];
  RecordCopy records[16];
  RecordCopy sends[16];
};
static_assert(sizeof(RowCopy) == Roster::kRowBytes);

}  // namespace

void Roster::copy_row(std::byte* target) const {
  static_assert(kRecords == 16);
  RowCopy copy{};
  const auto take = [](const Record& record) {
    return RecordCopy{record.flag.load(std::memory_order_acquire),
                      record.packed.load(std::memory_order_relaxed),
                      record.count.load(std::memory_order_relaxed)};
  };
  copy.begun = own_->begun.load(std::memory_order_relaxed);
  copy.ended = own_->ended.load(std::memory_order_relaxed);
  copy.wait_packed = own_->wait_packed.load(std::memory_order_relaxed);
  copy.wait_count = own_->wait_count.load(std::memory_order_relaxed);
  copy.wait_peer = own_->wait_peer.load(std::memory_order_relaxed);
  for (int i = 0; i < kRecords; ++i) {
    copy.records[i] = take(own_->records[i]);
    copy.sends[i] = take(own_->sends[i]);
  }
  std::memcpy(target, &copy, sizeof copy);
}

void Roster::adopt_row(int rank, const std::byte* source) {
  RowCopy copy{};
  std::memcpy(&copy, source, sizeof copy);
  Row& row = rows_[rank];
  if (copy.begun < row.begun.load(std::memory_order_relaxed)) return;
  const auto put = [](Record& record, const RecordCopy& from) {
    record.packed.store(from.packed, std::memory_order_relaxed);
    record.count.store(from.count, std::memory_order_relaxed);
    record.flag.store(from.flag, std::memory_order_release);  // meets call_of and sent_call
  };
  for (int i = 0; i < kRecords; ++i) {
    put(row.records[i], copy.records[i]);
    put(row.sends[i], copy.sends[i]);
  }
  row.wait_packed.store(copy.wait_packed, std::memory_order_relaxed);
  row.wait_count.store(copy.wait_count, std::memory_order_relaxed);
  row.wait_peer.store(static_cast<std::int32_t>(copy.wait_peer), std::memory_order_relaxed);
  row.ended.store(copy.ended, std::memory_order_relaxed);
  row.begun.store(copy.begun, std::memory_order_release);  // meets the acquire in begun()
}

void Roster::adopt_leaving(int rank, Leaving how) {
  rows_[rank].leaving.store(static_cast<std::uint32_t>(how), std::memory_order_release);
}

int Roster::lost_rank(int waits_for, std::string* how) const {
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    const Row& row = rows_[peer];
    const auto leaving =
        static_cast<Leaving>(row.leaving.load(std::memory_order_acquire));  // meets leave
    if (leaving == Leaving::kDone && peer != waits_for) continue;
    if (leaving == Leaving::kDone) *how = "has destroyed its communicator";
    if (leaving == Leaving::kThrew) *how = "left by an exception";
    if (leaving != Leaving::kPresent) return peer;
    if (!is_dead(row)) continue;
    *how = fmt::format("(process {}) is dead", row.pid.load(std::memory_order_relaxed));
    return peer;
  }
  return -1;
}

bool Roster::is_dead(const Row& row) {
  const int pid = row.pid.load(std::memory_order_acquire);  // meets the release in join
  const std::uint64_t start_time = row.start_time.load(std::memory_order_relaxed);
  if (pid == 0 || start_time == 0 || pid == getpid()) return false;
  return !process_lives(pid, start_time);
}

std::string Roster::name_of(int rank) const {
  if (upper_ == nullptr) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (world rank {})", rank,
                     rows_[rank].origin.load(std::memory_order_relaxed));
}

std::string Roster::stand_of(int rank) const {
  const Row& row = rows_[rank];
  const std::uint64_t number =
      row.begun.load(std::memory_order_acquire);  // meets the release in begin
  const std::uint64_t ended = row.ended.load(std::memory_order_relaxed);
  std::string text;
  if (number == 0) {
    text = "has made no call";
  } else {
    const std::optional<CallInfo> call = call_of(rank, number);
    text = fmt::format("{} call {} ({})", ended == number ? "has finished" : "is in", number,
                       call ? describe(*call) : "changing");
  }
  const int waits_for = row.wait_peer.load(std::memory_order_relaxed);
  if (waits_for > 0) {
    const CallInfo call = CallInfo::unpack(row.wait_packed.load(std::memory_order_relaxed),
                                           row.wait_count.load(std::memory_order_relaxed));
    text += fmt::format(" and waits for rank {} in {}", waits_for - 1, describe(call));
  }
  return text;
}

std::string Roster::stand() const {
  std::string text;
  for (int rank = 0; rank < world_; ++rank) {
    text += fmt::format("{}{} {}", rank == 0 ? "" : "; ", name_of(rank), stand_of(rank));
  }
  return text;
}

std::optional<std::string> Roster::disagreement() const {
  std::uint64_t newest = 0;
  for (int rank = 0; rank < world_; ++rank) newest = std::max(newest, begun(rank));
  for (std::uint64_t number = newest > kRecords ? newest - kRecords : 1; number <= newest;
       ++number) {
    std::vector<std::pair<CallInfo, std::string>> groups;
    for (int rank = 0; rank < world_; ++rank) {
      const std::optional<CallInfo> call = call_of(rank, number);
      if (!call) continue;
      const auto same = [&](const auto& group) { return group.first == *call; };
      const auto group = std::find_if(groups.begin(), groups.end(), same);
      if (group == groups.end()) {
        groups.emplace_back(*call, name_of(rank));
      } else {
        group->second += " and " + name_of(rank);
      }
    }
    if (groups.size() < 2) continue;
    std::string text = fmt::format("call {}:", number);
    for (const auto& [call, ranks] : groups)
      text += fmt::format(" {} called {};", ranks, describe(call));
    text.pop_back();
    return text;
  }
  return std::nullopt;
}

void Roster::poison(Cause cause, int peer, const std::string& text) {
  if (upper_ != nullptr) upper_->poison(cause, -1, text);
  adopt_poison(rank_, cause, peer, text);
}

void Roster::adopt_poison(int from, Cause cause, int peer, const std::string& text) {
  std::uint32_t expected = kClean;
  if (poison_->state.compare_exchange_strong(expected, kWriting, std::memory_order_seq_cst)) {
    poison_->rank = from;
    poison_->peer = peer;
    poison_->cause = static_cast<std::uint32_t>(cause);
    std::snprintf(poison_->text, sizeof poison_->text, "%s", text.c_str());
    poison_->state.store(kWritten,
                         std::memory_order_release);  // meets the acquires in poison_error
  }
  for (int rank = 0; rank < world_; ++rank) rows_[rank].doorbell.ring();
}

// The count and the poison are each written by one side and then read by the other: with both
// sequentially consistent at least one side sees the other.
bool Roster::enter_memory() {
  top().own_->reading.fetch_add(1, std::memory_order_seq_cst);
  if (!poisoned()) return true;
  leave_memory();
  return false;
}

void Roster::leave_memory() {
  top().own_->reading.fetch_sub(1, std::memory_order_release);  // meets await_readers
}

void Roster::await_readers(double timeout_s) const {
  const Roster& all = top();
  const std::int64_t start_ns = now_ns();
  for (int rank = 0; rank < all.world_; ++rank) {
    if (rank == all.rank_) continue;
    const Row& row = all.rows_[rank];
    for (int tries = 1; row.reading.load(std::memory_order_seq_cst) != 0; ++tries) {
      // A process that was killed while it read reads no more.
      if (tries % kTriesPerLook == 0 && is_dead(row)) break;
      // A rank that reads for so long is stuck inside a pass, which only a fault of this program
      // can cause; to return would hand its memory back to the caller while it is read.
      CHECK(static_cast<double>(now_ns() - start_ns) < timeout_s * 1e9);
      sched_yield();
    }
  }
}

Error Roster::poison_error() const {
  if (poison_->state.load(std::memory_order_acquire) == kClean) {  // meets poison()
    CHECK(upper_ != nullptr);
    return upper_->poison_error();
  }
  // The writer is a few stores away from done, unless it was killed among them.
  for (int tries = 0; tries < 100'000 && poison_->state.load(std::memory_order_acquire) == kWriting;
       ++tries) {
    sched_yield();
  }
  if (poison_->state.load(std::memory_order_acquire) != kWritten) {
    return {Cause::kPeerGone, rank_, -1,
            fmt::format("rank {}: a peer died while it reported an error", rank_)};
  }
  if (poison_->rank == rank_) {
    return {static_cast<Cause>(poison_->cause), rank_, poison_->peer, poison_->text};
  }
  const auto cause = static_cast<Cause>(poison_->cause);
  return {cause == Cause::kMismatch ? Cause::kMismatch : Cause::kPoisoned, rank_, poison_->rank,
          fmt::format("{}: stopped by the error of {}", name_of(rank_), poison_->text)};
}

}  // namespace sinew::comm
