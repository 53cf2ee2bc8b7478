// Parallel trees: an all-gather in which every rank broadcasts its block along a binomial tree of
// its own, all trees alike but turned, so that at each distance a rank's messages for all trees go
// to the same rank as one. Distances halve: far messages are small and the large ones go to
// neighbours, the other way round than with Bruck.
//
// Terms: at distance d = .., 4, 2, 1 rank r sends to r + d the blocks of ranks r, r - 2d, r - 4d,
// ... whose trees reach that far in a world of P. That is
//
//   sparbit  with each distance's blocks in one message: L rounds
//   pat      (parallel aggregated trees) with at most A = 8 blocks in a message, so that what a
//   rank
//            has to buffer for a message does not grow with P; reduce-scatter runs the trees
//            backwards, and all-reduce is one after the other
//
// Cost: (P-1)/P of the vector; pat takes the sum over d of ceil(n(d) / A) rounds, n(d) the blocks
// at that distance. Up to 16 ranks that is L. Any world. Loch and Koslovski, SBAC-PAD 2021
// (sparbit); Jeaugey, arXiv 2506.20252, 2025 (PAT).
//
// Picture: all_gather sparbit, 4 ranks
//   round 1   0 -c0-> 2  1 -c1-> 3  2 -c2-> 0  3 -c3-> 1
//   round 2   0 -c0,2-> 1  1 -c1,3-> 2  2 -c0,2-> 3  3 -c1,3-> 0
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 . . .  . 1 . .  . . 2 .  . . . 3
//   round 1    0 . 2 .  . 1 . 3  0 . 2 .  . 1 . 3
//   round 2    0 1 2 3  0 1 2 3  0 1 2 3  0 1 2 3
//
// Picture: all_gather pat, 4 ranks
//   round 1   0 -c0-> 2  1 -c1-> 3  2 -c2-> 0  3 -c3-> 1
//   round 2   0 -c0,2-> 1  1 -c1,3-> 2  2 -c0,2-> 3  3 -c1,3-> 0
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 . . .  . 1 . .  . . 2 .  . . . 3
//   round 1    0 . 2 .  . 1 . 3  0 . 2 .  . 1 . 3
//   round 2    0 1 2 3  0 1 2 3  0 1 2 3  0 1 2 3
//
// Picture: reduce_scatter pat, 4 ranks
//   round 1   0 -c1,3+-> 3  1 -c0,2+-> 0  2 -c1,3+-> 1  3 -c0,2+-> 2
//   round 2   0 -c2+-> 2  1 -c3+-> 3  2 -c0+-> 0  3 -c1+-> 1
//
//   held       rank 0     rank 1     rank 2     rank 3
//   start      0 0 0 0    1 1 1 1    2 2 2 2    3 3 3 3
//   round 1    01 0 01 0  1 12 1 12  23 2 23 2  3 03 3 03
//   round 2    * 0 01 0   1 * 1 12   23 2 * 2   3 03 3 *
#include <algorithm>
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

constexpr int kAggregated = 8;  // A

// A message of every rank: to the one `distance` further on, the blocks of the ranks that many
// places before it.
struct Message {
  int distance;
  std::vector<int> offsets;
};

std::vector<Message> messages_of(int world, int most_blocks) {
  std::vector<Message> messages;
  for (int level = ceil_log2(world) - 1; level >= 0; --level) {
    const int distance = 1 << level;
    bool fresh = true;
    for (int offset = 0; offset + distance < world; offset += 2 * distance) {
      if (fresh || static_cast<int>(messages.back().offsets.size()) == most_blocks)
        messages.push_back({distance, {}});
      fresh = false;
      messages.back().offsets.push_back(offset);
    }
  }
  return messages;
}

std::vector<int> blocks_of(const Message& message, int rank, int world) {
  std::vector<int> blocks;
  for (const int offset : message.offsets) blocks.push_back(mod(rank - offset, world));
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

void gather(Builder& b, int most_blocks) {
  const int world = b.world();
  for (const Message& message : messages_of(world, most_blocks)) {
    for (int from = 0; from < world; ++from) {
      b.copy(Scattered{.chunks = blocks_of(message, from, world),
                       .from = from,
                       .to = mod(from + message.distance, world)});
    }
  }
}

void scatter_sums(Builder& b) {
  const int world = b.world();
  std::vector<Message> messages = messages_of(world, kAggregated);
  std::reverse(messages.begin(), messages.end());
  for (const Message& message : messages) {
    for (int to = 0; to < world; ++to) {
      b.reduce(Scattered{.chunks = blocks_of(message, to, world),
                         .from = mod(to + message.distance, world),
                         .to = to});
    }
  }
}

void sparbit_all_gather(const Params&, Builder& b) { gather(b, b.world()); }

void pat_all_gather(const Params&, Builder& b) { gather(b, kAggregated); }

void pat_reduce_scatter(const Params&, Builder& b) { scatter_sums(b); }

void pat_all_reduce(const Params&, Builder& b) {
  scatter_sums(b);
  gather(b, kAggregated);
}

double share(const Params& params) { return (params.world - 1.0) / params.world; }

double pat_rounds(int world) {
  int rounds = 0;
  for (int distance = 1; distance < world; distance *= 2) {
    const int blocks = (world - 1 - distance) / (2 * distance) + 1;
    rounds += (blocks + kAggregated - 1) / kAggregated;
  }
  return rounds;
}

Cost sparbit_cost(const Params& params) {
  return {static_cast<double>(ceil_log2(params.world)), share(params), 0};
}
Cost pat_all_gather_cost(const Params& params) {
  return {pat_rounds(params.world), share(params), 0};
}
Cost pat_reduce_scatter_cost(const Params& params) {
  return {pat_rounds(params.world), share(params), share(params)};
}
Cost pat_all_reduce_cost(const Params& params) {
  return {2 * pat_rounds(params.world), 2 * share(params), share(params)};
}

}  // namespace

constinit const Algorithm kSparbitAllGather = {
    .op = Collective::kAllGather,
    .name = "sparbit",
    .formula = "L a + (P-1)/P m b",
    .source = "Loch and Koslovski, SBAC-PAD 2021",
    .generator = sparbit_all_gather,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = sparbit_cost,
};

constinit const Algorithm kPatAllReduce = {
    .op = Collective::kAllReduce,
    .name = "pat",
    .formula = "2R a + 2(P-1)/P m b + (P-1)/P m g, R = sum of ceil(n(d)/8) >= L",
    .source = "Jeaugey 2025, arXiv 2506.20252",
    .generator = pat_all_reduce,
    .chunks_of = chunk_per_rank,
    .rule = any_world,
    .closed_form = pat_all_reduce_cost,
};

constinit const Algorithm kPatReduceScatter = {
    .op = Collective::kReduceScatter,
    .name = "pat",
    .formula = "R a + (P-1)/P m (b + g), R = sum of ceil(n(d)/8) >= L",
    .source = "Jeaugey 2025, arXiv 2506.20252",
    .generator = pat_reduce_scatter,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = pat_reduce_scatter_cost,
};

constinit const Algorithm kPatAllGather = {
    .op = Collective::kAllGather,
    .name = "pat",
    .formula = "R a + (P-1)/P m b, R = sum of ceil(n(d)/8) >= L",
    .source = "Jeaugey 2025, arXiv 2506.20252",
    .generator = pat_all_gather,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = pat_all_gather_cost,
};

}  // namespace sinew::sched
