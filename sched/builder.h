// Builder: how an algorithm writes a Schedule, from the global view. Each call writes both ends of a move, so
// an unmatched send cannot be written. The builder tracks where each chunk of each rank currently lives
// (Input until first written, then Output where the contract gives the rank that slot, else Scratch), so
// algorithms speak of chunks and ranks only.
//
// Never does: decide (the algorithm does), prove (verify.h does, on the finished Schedule).
// Threads: one builder, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sched/schedule.h"

namespace sinew::sched {

struct Move {
  int chunk = 0;   // first chunk
  int chunks = 1;  // how many consecutive ones, as one message
  int from = 0;
  int to = 0;
  int lane = 0;
};

class Builder {
 public:
  // keep: store only this rank's program (what a running rank needs); nullopt stores all.
  explicit Builder(const Contract& contract, std::optional<int> keep = std::nullopt);

  [[nodiscard]] const Contract& contract() const { return contract_; }
  [[nodiscard]] int world() const { return contract_.world; }
  [[nodiscard]] int root() const { return contract_.root; }

  // `to` replaces its value of the chunks by `from`'s current value.
  void copy(const Move& move);
  // `to` combines `from`'s current value of the chunks into its own.
  void reduce(const Move& move);
  // As reduce and copy, but the received value is kept apart in a fresh scratch slot of `to` (returned in
  // order of calls by the scratch handle) until combine() folds it in: one-shot algorithms and any order of
  // summation that differs from the order of arrival are written with it.
  [[nodiscard]] int stage(const Move& move);
  void combine(int rank, int chunk, int chunks, int scratch_handle);
  void set_segments(int segments) { segments_ = segments; }

  // Derives dependences, adds the local copies that the postcondition still lacks, compacts scratch so that
  // consecutive chunks lie consecutively, and returns the schedule. The builder is empty afterwards.
  [[nodiscard]] Schedule finish(std::string name);

 private:
  Contract contract_;
  std::optional<int> keep_;
  int segments_ = 1;
  struct State;
  std::vector<State> states_;

 public:
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
};

}  // namespace sinew::sched
