// Pipelined chain: the vector travels from rank to rank, counted from the root, in k pieces one
// behind the other, so that all links are busy at once. A reduce runs the chain towards the root.
//
// Cost: P-2+k rounds of m/k bytes. With k about sqrt((P-2) m b / a) a broadcast takes
// (sqrt((P-2) a) + sqrt(m b))^2: the bandwidth bound for a long vector, but a latency that grows
// with P. Any world. Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007.
//
// Picture: broadcast chain, 4 ranks
//   round 1   0 -c0-> 1
//   round 2   1 -c0-> 2
//   round 3   2 -c0-> 3
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0        .        .        .
//   round 1    0        0        .        .
//   round 2    0        0        0        .
//   round 3    0        0        0        0
//
// Picture: reduce chain, 4 ranks
//   round 1   3 -c0+-> 2
//   round 2   2 -c0+-> 1
//   round 3   1 -c0+-> 0
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0        1        2        3
//   round 1    0        1        23       3
//   round 2    0        123      23       3
//   round 3    *        123      23       3
#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

// Calls visit(chunk, place) for every move between the ranks at `place` and `place` + 1 from the
// root, in the order of rounds. Backwards, round by round from the last.
template <typename Visit>
void for_each_move(int world, int pieces, bool backwards, Visit visit) {
  const int rounds = world - 2 + pieces;
  for (int i = 0; i < rounds; ++i) {
    const int round = backwards ? rounds - 1 - i : i;
    for (int place = 0; place < world - 1; ++place) {
      const int piece = round - place;
      if (piece >= 0 && piece < pieces) visit(piece, place);
    }
  }
}

void chain_broadcast(const Params&, Builder& b) {
  for_each_move(b.world(), b.chunks(), false, [&](int piece, int place) {
    b.copy({.chunk = piece,
            .from = mod(b.root() + place, b.world()),
            .to = mod(b.root() + place + 1, b.world())});
  });
}

void chain_reduce(const Params&, Builder& b) {
  for_each_move(b.world(), b.chunks(), true, [&](int piece, int place) {
    b.reduce({.chunk = piece,
              .from = mod(b.root() + place + 1, b.world()),
              .to = mod(b.root() + place, b.world())});
  });
}

int chain_chunks(const Params& params) { return params.segments; }

std::string chain_refuse(const Params& params) {
  if (params.segments <= kMaxChunks) return {};
  return "segments " + std::to_string(params.segments) + " is too many; legal values: 1 to " +
         std::to_string(kMaxChunks);
}

double rounds_of(const Params& params) {
  return params.world == 1 ? 0 : params.world - 2.0 + params.segments;
}

Cost chain_broadcast_cost(const Params& params) {
  return {rounds_of(params), rounds_of(params) / params.segments, 0};
}
Cost chain_reduce_cost(const Params& params) {
  const double vectors = rounds_of(params) / params.segments;
  return {rounds_of(params), vectors, vectors};
}

}  // namespace

constinit const Algorithm kChainBroadcast = {
    .op = Collective::kBroadcast,
    .name = "chain",
    .formula = "(P-2+k)(a + m b / k)",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = chain_broadcast,
    .chunks_of = chain_chunks,
    .rule = chain_refuse,
    .closed_form = chain_broadcast_cost,
    .segmented = true,
};

constinit const Algorithm kChainReduce = {
    .op = Collective::kReduce,
    .name = "chain",
    .formula = "(P-2+k)(a + m (b + g) / k)",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = chain_reduce,
    .chunks_of = chain_chunks,
    .rule = chain_refuse,
    .closed_form = chain_reduce_cost,
    .segmented = true,
};

}  // namespace sinew::sched
