// What writing and reading checkpoints share: the kinds of tensors in one, and which elements of
// them a rank stands for. Used by checkpoint.cc and checkpoint_writer.cc alone.
//
// Threads: one rank, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "model/optimizer.h"
#include "model/parallel.h"
#include "model/stage.h"

namespace sinew::model {

// What is kept of a parameter, in the order of the fingerprint table: kStateKindCount rows a
// parameter.
struct StateKind {
  const char* prefix;
  bool in_model_file;
};
inline constexpr StateKind kStateKinds[] = {
    {"", true}, {"first_moment.", false}, {"second_moment.", false}};
inline constexpr std::size_t kStateKindCount = std::size(kStateKinds);

inline std::size_t state_row(const Parameter& p, std::size_t kind) {
  return static_cast<std::size_t>(p.index) * kStateKindCount + kind;
}

// Calls body(parameter, piece, logical offset) for every run of elements that this rank, of all
// ranks of the run, stands for.
template <typename T, typename Body>
void for_each_own_run(const Stage<T>& stage, const Optimizer<T>& optimizer,
                      const Parallel& parallel, Body&& body) {
  if (!optimizer.stands_for_owned()) return;
  for (const Parameter& p : stage.parameters()) {
    if (!holds_for_all(p, parallel.coordinates())) continue;
    for (const Piece& owned : optimizer.owned()) {
      for_each_run_within(p, owned.flat_begin, owned.flat_begin + owned.count,
                          [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
                            body(p, owned.within(flat, flat + count), logical);
                          });
    }
  }
}

// Adds up all ranks' parts; modulo 2^64, so the order does not matter.
inline void sum_fingerprints(Parallel& parallel, std::vector<std::uint64_t>& parts) {
  sum_over(&parallel.world(), parts.data(), static_cast<std::int64_t>(parts.size()), DType::kI64);
}

}  // namespace sinew::model
