// Stage: room in the ranks' shared block through which a large call on ordinary memory passes tile
// by tile. Each rank puts a tile of its input where all can read it, all meet, and each takes what
// it wants from everybody's tile: a byte is put once, however many ranks read it, and what is put
// is still in cache when it is read.
//
// A rank has two tiles, used in turn, so that it fills one while the others still read the other;
// and two places for what it made of a tile, in turn too.
//
// Never does: meet, copy, or decide which calls are staged (staged_call.cc does).
// Threads: one object per rank, one thread at a time.
//
// Invariant: what is written in a round is read in that round after its meeting, or in the next
// one; it is written again two rounds later, when the meeting between has shown that all have read
// it. Rounds are counted over all calls, so this holds between them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinew::comm {

class Stage {
 public:
  [[nodiscard]] static std::int64_t tile_bytes(int world);
  [[nodiscard]] static std::size_t size_bytes(int world);
  Stage(std::byte* memory, int world);

  [[nodiscard]] std::int64_t tile_bytes() const { return tile_bytes_; }
  // Of this round: rank's tile, tile_bytes long.
  [[nodiscard]] std::byte* tile(int rank) const { return place(rank, round_) + result_bytes_; }
  // Room for the world-th part of a tile, rounded up by less than a cache line: of this round, and
  // of the one before.
  [[nodiscard]] std::byte* result(int rank) const { return place(rank, round_); }
  [[nodiscard]] std::byte* last_result(int rank) const { return place(rank, round_ + 1); }
  void next_round() { ++round_; }

 private:
  static constexpr int kTurns = 2;
  [[nodiscard]] std::byte* place(int rank, std::uint64_t round) const {
    return memory_ +
           (static_cast<std::int64_t>(rank) * kTurns + static_cast<std::int64_t>(round % kTurns)) *
               (result_bytes_ + tile_bytes_);
  }

  std::byte* memory_;
  std::int64_t tile_bytes_;
  std::int64_t result_bytes_;
  std::uint64_t round_ = 0;
};

}  // namespace sinew::comm
