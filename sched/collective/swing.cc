// Swing: recursive halving and doubling between ranks that are near each other on a ring: in step s
// an even rank r exchanges with r + d(s), an odd one with r - d(s), where d = 1, -1, 3, -5, 11, ...
// is the sum of (-2)^i for i up to s. On a torus the messages then travel fewer links than those of
// r xor 2^s.
//
// Terms: what a rank gives away in step s of the reduce-scatter are the blocks that end up with its
// partner or with those whom the partner meets later; they are no range of ranks. The all-gather
// runs the steps backwards. Cost: that of halving and doubling: log2 P rounds each way, (P-1)/P of
// the vector. A power of two. De Sensi, Bonato, Saam, Hoefler, NSDI 2024.
//
// Picture: reduce_scatter swing, 4 ranks
//   round 1   0 -c1..2+-> 1  1 -c0,3+-> 0  2 -c0,3+-> 3  3 -c1..2+-> 2
//   round 2   0 -c3+-> 3  1 -c2+-> 2  2 -c1+-> 1  3 -c0+-> 0
//
//   held       rank 0     rank 1     rank 2     rank 3
//   start      0 0 0 0    1 1 1 1    2 2 2 2    3 3 3 3
//   round 1    01 0 0 01  1 01 01 1  2 23 23 2  23 3 3 23
//   round 2    * 0 0 01   1 * 01 1   2 23 * 2   23 3 3 *
//
// Picture: all_gather swing, 4 ranks
//   round 1   0 -c0-> 3  1 -c1-> 2  2 -c2-> 1  3 -c3-> 0
//   round 2   0 -c0,3-> 1  1 -c1..2-> 0  2 -c1..2-> 3  3 -c0,3-> 2
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 . . .  . 1 . .  . . 2 .  . . . 3
//   round 1    0 . . 3  . 1 2 .  . 1 2 .  0 . . 3
//   round 2    0 1 2 3  0 1 2 3  0 1 2 3  0 1 2 3
#include <algorithm>
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

// [step][rank]
std::vector<std::vector<int>> partners_of(int world) {
  std::vector<std::vector<int>> partners;
  int distance = 1;
  int power = 1;  // (-2)^s
  for (int reached = 1; reached < world; reached *= 2) {
    std::vector<int> step;
    for (int rank = 0; rank < world; ++rank)
      step.push_back(mod(rank % 2 == 0 ? rank + distance : rank - distance, world));
    partners.push_back(step);
    power *= -2;
    distance += power;
  }
  return partners;
}

// blocks[step][rank]: what a rank is still responsible for before that step; after the last one its
// own block.
std::vector<std::vector<std::vector<int>>> blocks_of(
    int world, const std::vector<std::vector<int>>& partners) {
  std::vector<std::vector<std::vector<int>>> blocks(partners.size() + 1);
  for (int rank = 0; rank < world; ++rank) blocks.back().push_back({rank});
  for (std::size_t step = partners.size(); step-- > 0;) {
    for (int rank = 0; rank < world; ++rank) {
      std::vector<int> both = blocks[step + 1][static_cast<std::size_t>(rank)];
      const std::vector<int>& theirs =
          blocks[step + 1]
                [static_cast<std::size_t>(partners[step][static_cast<std::size_t>(rank)])];
      both.insert(both.end(), theirs.begin(), theirs.end());
      std::sort(both.begin(), both.end());
      blocks[step].push_back(std::move(both));
    }
  }
  return blocks;
}

void scatter_sums(Builder& b) {
  const auto partners = partners_of(b.world());
  const auto blocks = blocks_of(b.world(), partners);
  for (std::size_t step = 0; step < partners.size(); ++step) {
    for (int from = 0; from < b.world(); ++from) {
      const int to = partners[step][static_cast<std::size_t>(from)];
      b.reduce(Scattered{
          .chunks = blocks[step + 1][static_cast<std::size_t>(to)], .from = from, .to = to});
    }
  }
}

void gather_back(Builder& b) {
  const auto partners = partners_of(b.world());
  const auto blocks = blocks_of(b.world(), partners);
  for (std::size_t step = partners.size(); step-- > 0;) {
    for (int from = 0; from < b.world(); ++from) {
      b.copy(Scattered{.chunks = blocks[step + 1][static_cast<std::size_t>(from)],
                       .from = from,
                       .to = partners[step][static_cast<std::size_t>(from)]});
    }
  }
}

void swing_reduce_scatter(const Params&, Builder& b) { scatter_sums(b); }

void swing_all_gather(const Params&, Builder& b) { gather_back(b); }

void swing_all_reduce(const Params&, Builder& b) {
  scatter_sums(b);
  gather_back(b);
}

double levels(const Params& params) { return ceil_log2(params.world); }
double share(const Params& params) { return (params.world - 1.0) / params.world; }

Cost swing_reduce_scatter_cost(const Params& params) {
  return {levels(params), share(params), share(params)};
}
Cost swing_all_gather_cost(const Params& params) { return {levels(params), share(params), 0}; }
Cost swing_all_reduce_cost(const Params& params) {
  return {2 * levels(params), 2 * share(params), share(params)};
}

}  // namespace

constinit const Algorithm kSwingAllReduce = {
    .op = Collective::kAllReduce,
    .name = "swing",
    .formula = "2L a + 2(P-1)/P m b + (P-1)/P m g, P = 2^i",
    .source = "De Sensi, Bonato, Saam, Hoefler, NSDI 2024",
    .generator = swing_all_reduce,
    .chunks_of = chunk_per_rank,
    .rule = power_of_two,
    .closed_form = swing_all_reduce_cost,
};

constinit const Algorithm kSwingReduceScatter = {
    .op = Collective::kReduceScatter,
    .name = "swing",
    .formula = "L a + (P-1)/P m (b + g), P = 2^i",
    .source = "De Sensi, Bonato, Saam, Hoefler, NSDI 2024",
    .generator = swing_reduce_scatter,
    .chunks_of = one_chunk,
    .rule = power_of_two,
    .closed_form = swing_reduce_scatter_cost,
};

constinit const Algorithm kSwingAllGather = {
    .op = Collective::kAllGather,
    .name = "swing",
    .formula = "L a + (P-1)/P m b, P = 2^i",
    .source = "De Sensi, Bonato, Saam, Hoefler, NSDI 2024",
    .generator = swing_all_gather,
    .chunks_of = one_chunk,
    .rule = power_of_two,
    .closed_form = swing_all_gather_cost,
};

}  // namespace sinew::sched
