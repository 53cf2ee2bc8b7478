// Small calls: a blocking collective whose bytes fit into a box takes no lanes and no steps. Every
// rank has a few boxes that all map; a call is one write to the own box and a look at the others'.
// The payload rides in the line of the flag when it fits there: one cache miss per peer and call.
//
// What is done is the schedule `one_shot` of all_reduce and `direct` of the others: every rank
// sends what it has to all who need it, and sums run over the ranks in increasing order. Same bits
// as the executor's run of them.
//
// Never does: block, or decide which calls are small.
// Threads: one object per rank, one thread at a time.
//
// Invariants
//   1. Every rank opens a box in every small call, also one that contributes nothing: its flag says
//   that the rank
//      has begun this call and so finished all small calls before it.
//   2. Box k mod kBoxes is written for small call k only when all ranks have begun call k - kBoxes
//   + 1, and so
//      have read what call k - kBoxes left there.
//   Ordering: the release store in open() meets the acquire loads in holds() and begun().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "comm/call.h"

namespace sinew::comm {

class SmallBoxes {
 public:
  // How far a rank that waits for nobody runs ahead before its readers must run. Gather, scatter,
  // broadcast and reduce of 8 B, 4 ranks on 2 cores of an EPYC of the Zen 3 kind, four runs each in
  // turn: in batches of nine calls and more 1.1 to 2.1 us with 8 boxes, 0.6 to 1.1 with 32; in
  // batches of two or three 2.4 to 3.9 with either. With a core each there was no clear gain.
  static constexpr int kBoxes = 32;
  static constexpr std::int64_t kPayloadBytes = 2048;
  static constexpr std::int64_t kFetchedBytes = 1024;

  [[nodiscard]] static std::size_t size_bytes(int world);
  // memory: zero before first use.
  SmallBoxes(std::byte* memory, int rank, int world);

  // Whether the next call's own box may be written. When not, waits_for() says for whom.
  [[nodiscard]] bool free_to_write() {
    if (all_began_ + kBoxes >= call_ + 2) [[likely]]
      return true;
    return look_who_began();
  }

  // Writes the own box of the next call and begins it.
  void open(std::uint64_t flag, const void* payload, std::int64_t size) {
    ++call_;
    Box& own = box(rank_);
    flags_[call_ % kBoxes] = flag;
    if (size > 0) std::memcpy(own.payload(size), payload, static_cast<std::size_t>(size));
    own.flag.store(flag, std::memory_order_release);
    fetch_own_next(size > Box::kInLine ? size : 0);
  }

  // The same for peers that do not know how long the payload is: sized_payload() tells them.
  void open_sized(std::uint64_t flag, const std::byte* payload, std::int64_t size) {
    ++call_;
    Box& own = box(rank_);
    flags_[call_ % kBoxes] = flag;
    std::memcpy(own.line, &size, sizeof size);
    if (size > 0) std::memcpy(own.sized_payload(size), payload, static_cast<std::size_t>(size));
    own.flag.store(flag, std::memory_order_release);
    fetch_own_next(size > Box::kSizedInLine ? size : 0);
  }

  // Of the call begun last:
  [[nodiscard]] bool holds(int peer) const {
    return box(peer).flag.load(std::memory_order_acquire) == flags_[call_ % kBoxes];
  }
  [[nodiscard]] std::uint64_t shown(int peer) const {
    return box(peer).flag.load(std::memory_order_acquire);
  }
  // size: as the peer opened its box with.
  [[nodiscard]] const std::byte* payload(int peer, std::int64_t size) const {
    return box(peer).payload(size);
  }
  [[nodiscard]] std::span<const std::byte> sized_payload(int peer) const {
    const Box& theirs = box(peer);
    std::int64_t size = 0;
    std::memcpy(&size, theirs.line, sizeof size);
    return {theirs.sized_payload(size), static_cast<std::size_t>(size)};
  }
  // All peers' boxes were seen to hold this call.
  void all_began() { all_began_ = call_; }
  // Of a peer that may be calls ahead: its next box comes over while the caller computes.
  void fetch_next(int peer) const {
    const Box& next = boxes_[static_cast<std::size_t>(peer) * kBoxes + (call_ + 1) % kBoxes];
    __builtin_prefetch(&next);
    __builtin_prefetch(next.more);
  }
  // After free_to_write() was false.
  [[nodiscard]] int waits_for() const { return waits_for_; }

 private:
  struct alignas(64) Box {
    static constexpr std::int64_t kInLine = 56;
    std::atomic<std::uint64_t> flag;
    std::byte line[kInLine];
    std::byte more[kPayloadBytes];
    // A payload that does not fit beside the flag starts at a line of its own, aligned for vector
    // loads.
    [[nodiscard]] std::byte* payload(std::int64_t size) { return size <= kInLine ? line : more; }
    [[nodiscard]] const std::byte* payload(std::int64_t size) const {
      return size <= kInLine ? line : more;
    }
    // Beside the flag comes the size.
    static constexpr std::int64_t kSizedInLine = kInLine - std::int64_t{sizeof(std::int64_t)};
    [[nodiscard]] std::byte* sized_payload(std::int64_t size) {
      return size <= kSizedInLine ? line + sizeof size : more;
    }
    [[nodiscard]] const std::byte* sized_payload(std::int64_t size) const {
      return size <= kSizedInLine ? line + sizeof size : more;
    }
  };
  static_assert(sizeof(Box) == 64 + kPayloadBytes);

  [[nodiscard]] Box& box(int rank) const {
    return boxes_[static_cast<std::size_t>(rank) * kBoxes + call_ % kBoxes];
  }
  // The next box is soon written, likely with as much beside its line as this one: the lines, which
  // the peers have read, become this rank's alone meanwhile. Of many that takes as long as writing.
  void fetch_own_next(std::int64_t beside_line) const {
    const Box& next = boxes_[static_cast<std::size_t>(rank_) * kBoxes + (call_ + 1) % kBoxes];
    fetch_for_writing(next.line);
    if (beside_line > kFetchedBytes) return;
    for (std::int64_t i = 0; i < beside_line; i += 64) fetch_for_writing(next.more + i);
  }
  // The compiler has the instruction only where it may assume that the processor has; one that has
  // not takes it for none.
  static void fetch_for_writing(const std::byte* line) {
    asm volatile("prefetchw %0" : : "m"(*line));
  }

  // Whether all peers are seen to have begun the call `needed`, of the last kBoxes.
  bool all_have_begun(std::uint64_t needed);
  bool look_who_began();

  Box* boxes_;  // [world][kBoxes]
  int rank_;
  int world_;
  int waits_for_ = -1;
  std::uint64_t call_ = 0;       // small calls begun by this rank
  std::uint64_t all_began_ = 0;  // small calls known to be begun by all
  std::uint64_t flags_[kBoxes] = {};
};

}  // namespace sinew::comm
