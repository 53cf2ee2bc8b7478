// Who holds which positions under context parallelism, and how causal work is spread by it.
#include "sched/plan/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sched/base/error.h"

namespace sinew::sched {
namespace {

constexpr ContextMode kModes[] = {ContextMode::kZigzag, ContextMode::kContiguous,
                                  ContextMode::kStriped, ContextMode::kUlysses};

TEST(Context, EveryPositionIsHeldOnceAndInOrder) {
  for (const ContextMode mode : kModes) {
    EXPECT_EQ(parse_context_mode(name_of(mode)), mode);
    for (const int ranks : {1, 2, 3, 4, 8}) {
      const std::int64_t time = 2 * context_pieces(mode, ranks);
      std::multiset<std::int64_t> held;
      for (int rank = 0; rank < ranks; ++rank) {
        std::int64_t local = 0;
        std::int64_t last = -1;
        for (const SequencePiece& piece : sequence_pieces(mode, time, ranks, rank)) {
          EXPECT_EQ(piece.begin, local);
          local += piece.count;
          for (std::int64_t i = 0; i < piece.count; ++i) {
            const std::int64_t position = piece.first + i * piece.stride;
            EXPECT_GT(position, last);
            last = position;
            held.insert(position);
          }
        }
        EXPECT_EQ(local, time / ranks);
      }
      ASSERT_EQ(static_cast<std::int64_t>(held.size()), time);
      EXPECT_EQ(*held.rbegin(), time - 1);
      EXPECT_EQ(static_cast<std::int64_t>(std::set(held.begin(), held.end()).size()), time);
    }
  }
  EXPECT_THROW((void)parse_context_mode("ring"), UsageError);
}

TEST(Context, TheDiagonalSaysWhichKeysAQuerySees) {
  for (const ContextMode mode : kModes) {
    for (const int ranks : {1, 2, 3, 4}) {
      const std::int64_t time = 3 * context_pieces(mode, ranks);
      for (int a = 0; a < ranks; ++a) {
        for (int b = 0; b < ranks; ++b) {
          for (const SequencePiece& q : sequence_pieces(mode, time, ranks, a)) {
            for (const SequencePiece& k : sequence_pieces(mode, time, ranks, b)) {
              const std::int64_t diagonal = causal_diagonal(q, k);
              for (std::int64_t i = 0; i < q.count; ++i) {
                for (std::int64_t j = 0; j < k.count; ++j) {
                  EXPECT_EQ(j <= i + diagonal, k.first + j * k.stride <= q.first + i * q.stride);
                }
              }
            }
          }
        }
      }
    }
  }
}

// Pairs of a query and a key it sees, in the hop after which all ranks wait for the slowest: the
// efficiency is the mean over the sum of the most. Contiguous pieces reach c / (2c - 1) only.
TEST(Context, ZigzagBalancesCausalWorkAndContiguousDoesNot) {
  for (const int ranks : {2, 4, 8}) {
    const std::int64_t time = 64 * 2 * ranks;
    const auto efficiency = [&](ContextMode mode) {
      double total = 0;
      double slowest = 0;
      for (int hop = 0; hop < ranks; ++hop) {
        double most = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          double pairs = 0;
          for (const SequencePiece& q : sequence_pieces(mode, time, ranks, rank)) {
            for (const SequencePiece& k :
                 sequence_pieces(mode, time, ranks, (rank - hop + ranks) % ranks)) {
              const std::int64_t diagonal = causal_diagonal(q, k);
              for (std::int64_t i = 0; i < q.count; ++i)
                pairs +=
                    static_cast<double>(std::clamp<std::int64_t>(i + diagonal + 1, 0, k.count));
            }
          }
          total += pairs;
          most = std::max(most, pairs);
        }
        slowest += most;
      }
      return total / ranks / slowest;
    };
    EXPECT_GT(efficiency(ContextMode::kZigzag), 0.99);
    EXPECT_GT(efficiency(ContextMode::kStriped), 0.95);
    EXPECT_NEAR(efficiency(ContextMode::kContiguous), ranks / (2.0 * ranks - 1), 0.01);
  }
}

}  // namespace
}  // namespace sinew::sched
