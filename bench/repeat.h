// Repeat: how often and how a piece of collective work is timed.
//
// One iteration is `batch` calls between two barriers; its time is the maximum over ranks of the
// time per call. Batches exist because a call of a few hundred nanoseconds is shorter than the skew
// with which ranks leave a barrier; where all candidates' calls are longer than kBatchTarget_s they
// are timed one by one. All candidates of a row have batches of one length, since calls that follow
// each other cost less than one behind a barrier, and are timed in the same run in alternating
// blocks, so that a slow phase of the machine meets each of them; the first call of a block is not
// timed, so that none pays for the other's footprint in the cache.
//
// Never does: decide what is compared. Threads: one communicator, one thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace sinew::bench {

struct RepeatOptions {
  double budget_s = 0.1;    // timed work per candidate; on a busy machine up to four times that
  int iterations_min = 15;  // of which a block has three
  int iterations_max = 2000;
  double patience_s = 5;  // where the least would take longer: as many as take so long, at least 3
  int calls = 0;   // timed, exactly so many; 0: as many as the budget pays, within these bounds
  int warmup = 1;  // calls of a candidate before it is first timed
};

// Of the maximum over ranks, over iterations; equal on all ranks.
struct Times {
  double min_s = 0;
  double median_s = 0;
  double p99_s = 0;
  int iterations = 0;
  int batch = 1;
};

// Collective: every rank passes the same number of candidates, each a collective call.
[[nodiscard]] std::vector<Times> time_candidates(comm::Communicator& communicator,
                                                 std::span<const std::function<void()>> candidates,
                                                 const RepeatOptions& options = {});

// Sorts `samples`. The p-th quantile is the smallest sample that at least p of all samples do not
// exceed.
[[nodiscard]] Times summarize(std::vector<double>& samples_s, int batch);

}  // namespace sinew::bench
