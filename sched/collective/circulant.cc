// Circulant: reduce-scatter and all-gather in ceil(log2 P) rounds for any P, each rank sending,
// receiving and reducing exactly P-1 blocks. In radix r a round has r-1 messages to different
// ranks, which pays where a rank can send several at a time.
//
// Terms: sizes P = s0 > s1 > ... > 1 with s(k+1) = ceil(s(k)/r). Rank i keeps a partial sum for
// each of ranks i, i+1, ... i+s-1 (cyclically). A round with s' = ceil(s/r) sends for each digit
// d = 1 .. r-1 the (at most s') sums from i+ds' on to rank i+ds', which adds them to its own first
// ones. The all-gather runs the rounds backwards, copying. Radix 2: Traeff, "Optimal, non-pipelined
// reduce-scatter and allreduce algorithms", 2024 (arXiv 2410.14234).
//
// Picture: all_reduce circulant, 4 ranks
//   round 1   0 -c2..3+-> 2  1 -c3,0+-> 3  2 -c0..1+-> 0  3 -c1..2+-> 1
//   round 2   0 -c1+-> 1  1 -c2+-> 2  2 -c3+-> 3  3 -c0+-> 0
//   round 3   0 -c0-> 3  1 -c1-> 0  2 -c2-> 1  3 -c3-> 2
//   round 4   0 -c0..1-> 2  1 -c1..2-> 3  2 -c2..3-> 0  3 -c3,0-> 1
//
//   held       rank 0     rank 1     rank 2     rank 3
//   start      0 0 0 0    1 1 1 1    2 2 2 2    3 3 3 3
//   round 1    02 02 0 0  1 13 13 1  2 2 02 02  13 3 3 13
//   round 2    * 02 0 0   1 * 13 1   2 2 * 02   13 3 3 *
//   round 3    * * 0 0    1 * * 1    2 2 * *    * 3 3 *
//   round 4    * * * *    * * * *    * * * *    * * * *
#include <algorithm>
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

struct Message {
  int skip;    // d s'
  int blocks;  // of the s sums, those from there on
};

std::vector<Message> messages_of(int world, int radix) {
  std::vector<Message> messages;
  for (int size = world; size > 1;) {
    const int part = (size + radix - 1) / radix;
    for (int skip = part; skip < size; skip += part)
      messages.push_back({skip, std::min(part, size - skip)});
    size = part;
  }
  return messages;
}

void scatter_sums(const Params& params, Builder& b) {
  for (const Message& message : messages_of(b.world(), params.radix)) {
    for (int rank = 0; rank < b.world(); ++rank) {
      const int to = mod(rank + message.skip, b.world());
      b.reduce({.chunk = to, .chunks = message.blocks, .from = rank, .to = to});
    }
  }
}

void gather_back(const Params& params, Builder& b) {
  const std::vector<Message> messages = messages_of(b.world(), params.radix);
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    for (int rank = 0; rank < b.world(); ++rank) {
      b.copy({.chunk = rank,
              .chunks = message->blocks,
              .from = rank,
              .to = mod(rank - message->skip, b.world())});
    }
  }
}

double levels(const Params& params) {
  return static_cast<double>(messages_of(params.world, params.radix).size());
}
double share(const Params& params) { return (params.world - 1.0) / params.world; }

void circulant_reduce_scatter(const Params& params, Builder& b) { scatter_sums(params, b); }

void circulant_all_gather(const Params& params, Builder& b) { gather_back(params, b); }

void circulant_all_reduce(const Params& params, Builder& b) {
  scatter_sums(params, b);
  gather_back(params, b);
}

Cost circulant_reduce_scatter_cost(const Params& params) {
  return {levels(params), share(params), share(params)};
}
Cost circulant_all_gather_cost(const Params& params) { return {levels(params), share(params), 0}; }
Cost circulant_all_reduce_cost(const Params& params) {
  return {2 * levels(params), 2 * share(params), share(params)};
}

}  // namespace

constinit const Algorithm kCirculantAllReduce = {
    .op = Collective::kAllReduce,
    .name = "circulant",
    .formula = "2(r-1) log_r P a + 2(P-1)/P m b + (P-1)/P m g",
    .source = "Traeff 2024, arXiv 2410.14234",
    .generator = circulant_all_reduce,
    .chunks_of = chunk_per_rank,
    .rule = any_world,
    .closed_form = circulant_all_reduce_cost,
    .radix = 2,
};

constinit const Algorithm kCirculantReduceScatter = {
    .op = Collective::kReduceScatter,
    .name = "circulant",
    .formula = "(r-1) log_r P a + (P-1)/P m (b + g)",
    .source = "Traeff 2024, arXiv 2410.14234",
    .generator = circulant_reduce_scatter,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = circulant_reduce_scatter_cost,
    .radix = 2,
};

constinit const Algorithm kCirculantAllGather = {
    .op = Collective::kAllGather,
    .name = "circulant",
    .formula = "(r-1) log_r P a + (P-1)/P m b",
    .source = "Traeff 2024, arXiv 2410.14234",
    .generator = circulant_all_gather,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = circulant_all_gather_cost,
    .radix = 2,
};

}  // namespace sinew::sched
