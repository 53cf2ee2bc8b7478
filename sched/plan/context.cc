#include "sched/plan/context.h"

#include <array>

#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::sched {

namespace {
constexpr std::array<std::string_view, 4> kNames = {"zigzag", "contiguous", "striped", "ulysses"};
}

ContextMode parse_context_mode(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ContextMode>(i);
  }
  throw UsageError("--cp-mode '" + std::string(name) +
                   "'; legal values: zigzag, contiguous, striped, ulysses");
}

std::string_view name_of(ContextMode mode) { return kNames[static_cast<std::size_t>(mode)]; }

std::int64_t context_pieces(ContextMode mode, int ranks) {
  return mode == ContextMode::kZigzag && ranks > 1 ? 2 * ranks : ranks;
}

std::vector<SequencePiece> sequence_pieces(ContextMode mode, std::int64_t time, int ranks,
                                           int rank) {
  CHECK_LT(rank, ranks);
  CHECK_EQ(time % context_pieces(mode, ranks), 0);
  const std::int64_t share = time / ranks;
  if (ranks == 1) return {{0, time, 0, 1}};
  switch (mode) {
    case ContextMode::kZigzag: {
      const std::int64_t half = share / 2;
      return {{0, half, rank * half, 1}, {half, half, (2 * ranks - 1 - rank) * half, 1}};
    }
    case ContextMode::kStriped:
      return {{0, share, rank, ranks}};
    case ContextMode::kContiguous:
    case ContextMode::kUlysses:
      return {{0, share, rank * share, 1}};
  }
  __builtin_unreachable();
}

std::int64_t causal_diagonal(const SequencePiece& q, const SequencePiece& k) {
  CHECK_EQ(q.stride, k.stride);
  const std::int64_t distance = q.first - k.first;
  const std::int64_t floor = distance >= 0 ? 0 : q.stride - 1;  // C++ division rounds towards 0
  return (distance - floor) / q.stride;
}

}  // namespace sinew::sched
