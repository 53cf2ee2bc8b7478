// Context parallelism: which positions of a sequence each rank holds.
//
// Never does: move anything. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::sched {

// Ring attention (Liu et al. 2023) sends keys and values round the ranks of cp; the first three
// differ in who holds which positions, and so in how causal attention's work is spread:
//   zigzag      rank r holds pieces r and 2c-1-r of 2c: every rank has the same work
//   contiguous  rank r holds piece r of c: the last rank works most, efficiency c / (2c - 1)
//   striped     rank r holds positions r, r + c, r + 2c, ...: nearly the same work
//   ulysses     contiguous pieces; all-to-alls trade positions for heads around attention
//   (DeepSpeed
//               Ulysses, Jacobs et al. 2023), so that c divides a tensor rank's heads and key/value
//               heads
enum class ContextMode : std::uint8_t { kZigzag, kContiguous, kStriped, kUlysses };
// Throws UsageError naming the four.
[[nodiscard]] ContextMode parse_context_mode(std::string_view name);
[[nodiscard]] std::string_view name_of(ContextMode mode);

// Local positions [begin, begin + count) of a rank are first, first + stride, ... of the sequence.
struct SequencePiece {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t first = 0;
  std::int64_t stride = 1;
};

// What `time` must be a multiple of.
[[nodiscard]] std::int64_t context_pieces(ContextMode mode, int ranks);
// The pieces of one rank, by increasing positions; all of one size.
[[nodiscard]] std::vector<SequencePiece> sequence_pieces(ContextMode mode, std::int64_t time,
                                                         int ranks, int rank);

// Query a of piece q sees key b of piece k iff b <= a + this. Both pieces have the same stride.
[[nodiscard]] std::int64_t causal_diagonal(const SequencePiece& q, const SequencePiece& k);

}  // namespace sinew::sched
