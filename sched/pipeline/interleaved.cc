// Interleaved 1F1B: v model chunks per rank in the looping placement, so that the pipeline fills v
// times as fast.
//
// Microbatches go through the chunks group by group: all of a group through chunk 0, then all of it
// through chunk 1, and so on; backwards alike, from the last chunk. Rank r warms up with
// min(2(p-r-1) + (v-1)g, mv) forwards, g the largest group, then alternates. Second chunks are in
// lower case:
//
// Drawn: interleaved p 2 v 2 m 4
//
//   rank 0 |F0F1f0f1F2  b0==F3b1==f2B0==f3B1==  b2==  b3==B2==B3==|
//   rank 1 |  F0F1f0b0==f1b1==F2B0==F3B1==f2b2==f3b3==B2==B3==    |
//
// Bubble (p-1)(F+B+W) of one chunk: 1/v of 1F1B's. A group of fewer than p microbatches lets its
// next chunk wait for the first to come round, so m is cut into floor(m/p) groups that differ by at
// most one and none is below p. Then every m >= p has the bubble that groups of p each have only
// when m is a multiple of p; the price is (v-1)(g-p) chunks of memory and a queue of up to g-p+1
// messages from the last rank to the first, with g < 2p. Fewer microbatches than p make one group
// that goes round v times, as long as p microbatches would take: bubble (p-1 + (v-1)(p-m))(F+B+W).
//
// Source: Narayanan et al., Efficient large-scale language model training on GPU clusters, SC 2021,
// section 2.2 (p-by-p groups, m a multiple of p).
#include <algorithm>

#include "sched/base/partition.h"
#include "sched/pipeline/algorithms.h"

namespace sinew::sched {

namespace {

struct ChunkAction {
  int chunk;
  int microbatch;
};

int groups_of(const PipeParams& params) { return std::max(1, params.microbatches / params.ranks); }

int largest_group(const PipeParams& params) {
  return static_cast<int>(partition(params.microbatches, groups_of(params), 0).count);
}

// The forwards of every rank in order; backwards take the same groups with the chunks mirrored.
std::vector<ChunkAction> order_of_forwards(const PipeParams& params) {
  std::vector<ChunkAction> order;
  for (int group = 0; group < groups_of(params); ++group) {
    const Part part = partition(params.microbatches, groups_of(params), group);
    for (int chunk = 0; chunk < params.chunks; ++chunk) {
      for (int i = 0; i < part.count; ++i)
        order.push_back({chunk, static_cast<int>(part.offset) + i});
    }
  }
  return order;
}

int warmup_of(const PipeParams& params, int rank) {
  return std::min(2 * (params.ranks - rank - 1) + (params.chunks - 1) * largest_group(params),
                  params.microbatches * params.chunks);
}

}  // namespace

PipeSchedule interleaved(const PipeParams& params) {
  PipeSchedule schedule =
      empty_schedule("interleaved", params, looping_placement(params.ranks, params.chunks));
  const std::vector<ChunkAction> order = order_of_forwards(params);
  for (int rank = 0; rank < params.ranks; ++rank) {
    const auto forward = [&](const ChunkAction& action) {
      append(schedule, rank, PipeVerb::kForward, action.chunk * params.ranks + rank,
             action.microbatch);
    };
    const auto warmup = static_cast<std::size_t>(warmup_of(params, rank));
    for (std::size_t i = 0; i < warmup; ++i) forward(order[i]);
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i + warmup < order.size()) forward(order[i + warmup]);
      const int mirrored = params.chunks - 1 - order[i].chunk;
      append(schedule, rank, PipeVerb::kBackward, mirrored * params.ranks + rank,
             order[i].microbatch);
    }
  }
  return schedule;
}

std::string interleaved_refuse(const PipeParams& params) {
  if (params.chunks >= 2) return {};
  return "has at least 2 model chunks per rank, not " + std::to_string(params.chunks);
}

double interleaved_bubble(const PipeParams& params, const PipeTimes&) {
  const double p = params.ranks;
  const double m = params.microbatches;
  const double v = params.chunks;
  return (p - 1 + (v - 1) * std::max(p - m, 0.0)) / (v * m);
}

int interleaved_peak_live(const PipeParams& params, int rank) {
  return std::min(warmup_of(params, rank) + 1, params.microbatches * params.chunks);
}

}  // namespace sinew::sched
