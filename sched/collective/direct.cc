// Direct: every rank sends to every rank that needs the data, nothing is forwarded. With one port
// P-1 rounds, on memory that all ranks map one phase.
//
//   one_shot all-reduce     every rank sends its whole vector to all, all reduce all of them
//   two_shot all-reduce     direct reduce-scatter, then direct all-gather: the bandwidth bound
//   all_to_all              every rank sends to each what is for it (also called spread)
// Every sum runs over the ranks in increasing order, on every rank: ((x0 + x1) + x2) + ... Both
// all-reduces and the reduce-scatter therefore give the same bits. The ranks before one's own are
// summed aside (builder.h). In round t rank r sends to rank r + t, so that no two ranks send to one
// at a time.
//
// Picture: all_reduce one_shot, 4 ranks
//   round 1   0 -c0+-> 1  1 -c0+-> 2  2 -c0+-> 3  3 -c0+-> 0
//   round 2   0 -c0-> 2  1 -c0+-> 3  2 -c0+-> 0  3 -c0+-> 1
//   round 3   0 -c0-> 3  1 -c0+-> 0  2 -c0+-> 1  3 -c0+-> 2
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0        1        2        3
//   round 1    0        1        2        3
//   round 2    0        1        012      3
//   round 3    *        *        *        *
//
// Picture: all_reduce two_shot, 4 ranks
//   round 1   0 -c1+-> 1  1 -c2+-> 2  2 -c3+-> 3  3 -c0+-> 0
//   round 2   0 -c2-> 2  1 -c3+-> 3  2 -c0+-> 0  3 -c1+-> 1
//   round 3   0 -c3-> 3  1 -c0+-> 0  2 -c1+-> 1  3 -c2+-> 2
//   round 4   0 -c0-> 3  1 -c1-> 0  2 -c2-> 1  3 -c3-> 2
//   round 5   0 -c0-> 2  1 -c1-> 3  2 -c2-> 0  3 -c3-> 1
//   round 6   0 -c0-> 1  1 -c1-> 2  2 -c2-> 3  3 -c3-> 0
//
//   held       rank 0     rank 1     rank 2     rank 3
//   start      0 0 0 0    1 1 1 1    2 2 2 2    3 3 3 3
//   round 1    0 0 0 0    1 01 1 1   2 2 2 2    3 3 3 3
//   round 2    0 0 0 0    1 01 1 1   2 2 012 2  3 3 3 3
//   round 3    * 0 0 0    1 * 1 1    2 2 * 2    3 3 3 *
//   round 4    * * 0 0    1 * * 1    2 2 * *    * 3 3 *
//   round 5    * * * 0    1 * * *    * 2 * *    * * 3 *
//   round 6    * * * *    * * * *    * * * *    * * * *
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"
#include "sched/collective/rank_order.h"

namespace sinew::sched {

namespace {

// Every rank sends chunks [chunk_of(to), + chunks) to every other one; each then sums.
template <typename ChunkOf>
void exchange_and_sum(Builder& b, int chunks, ChunkOf chunk_of) {
  const int world = b.world();
  std::vector<Messages> inbox(static_cast<std::size_t>(world),
                              Messages(static_cast<std::size_t>(world)));
  for (int round = 1; round < world; ++round) {
    for (int from = 0; from < world; ++from) {
      const int to = mod(from + round, world);
      inbox[static_cast<std::size_t>(to)][static_cast<std::size_t>(from)] =
          b.post({.chunk = chunk_of(to), .chunks = chunks, .from = from, .to = to});
    }
  }
  for (int to = 0; to < world; ++to) {
    Messages& messages = inbox[static_cast<std::size_t>(to)];
    messages.erase(messages.begin() + to);
    if (!messages.empty()) sum_in_rank_order(b, to, chunk_of(to), chunks, messages);
  }
}

void gather_directly(Builder& b, int lane) {
  const int world = b.world();
  for (int round = 1; round < world; ++round) {
    for (int from = 0; from < world; ++from)
      b.copy({.chunk = from, .from = from, .to = mod(from - round, world), .lane = lane});
  }
}

void direct_gather(const Params&, Builder& b) {
  for (int round = 1; round < b.world(); ++round) {
    const int from = mod(b.root() + round, b.world());
    b.copy({.chunk = from, .from = from, .to = b.root()});
  }
}

void direct_scatter(const Params&, Builder& b) {
  for (int round = 1; round < b.world(); ++round) {
    const int to = mod(b.root() + round, b.world());
    b.copy({.chunk = to, .from = b.root(), .to = to});
  }
}

// Everything is sent before anything is received, because in place what comes from a rank lies
// where what goes to it did.
void direct_all_to_all(const Params&, Builder& b) {
  std::vector<Relay> relays;
  for (int round = 1; round < b.world(); ++round) {
    for (int from = 0; from < b.world(); ++from) {
      const int to = mod(from + round, b.world());
      if (!b.kept(from) && !b.kept(to)) continue;
      relays.push_back(
          {.items = {{{Space::kInput, to}, {Space::kOutput, from}}}, .from = from, .to = to});
    }
  }
  b.exchange(relays);
}

double others(const Params& params) { return params.world - 1.0; }
double share(const Params& params) { return others(params) / params.world; }

void direct_broadcast(const Params&, Builder& b) {
  for (int round = 1; round < b.world(); ++round) {
    b.copy({.chunk = 0,
            .chunks = b.chunks(),
            .from = b.root(),
            .to = mod(b.root() + round, b.world())});
  }
}

void direct_reduce(const Params&, Builder& b) {
  Messages messages;
  for (int from = 0; from < b.world(); ++from) {
    if (from != b.root())
      messages.push_back(b.post({.chunk = 0, .chunks = b.chunks(), .from = from, .to = b.root()}));
  }
  if (!messages.empty()) sum_in_rank_order(b, b.root(), 0, b.chunks(), messages);
}

void direct_reduce_scatter(const Params&, Builder& b) {
  exchange_and_sum(b, 1, [](int to) { return to; });
}

void direct_all_gather(const Params&, Builder& b) { gather_directly(b, 0); }

void one_shot_all_reduce(const Params&, Builder& b) {
  exchange_and_sum(b, b.chunks(), [](int) { return 0; });
}

void two_shot_all_reduce(const Params&, Builder& b) {
  exchange_and_sum(b, 1, [](int to) { return to; });
  // A lane of its own: the first summed bytes need not queue behind the last of the first phase.
  gather_directly(b, 1);
}

Cost direct_broadcast_cost(const Params& params) { return {others(params), others(params), 0}; }
Cost direct_reduce_cost(const Params& params) {
  return {others(params), others(params), others(params)};
}
Cost direct_reduce_scatter_cost(const Params& params) {
  return {others(params), share(params), share(params)};
}
Cost direct_all_gather_cost(const Params& params) { return {others(params), share(params), 0}; }
Cost one_shot_all_reduce_cost(const Params& params) {
  return {others(params), others(params), others(params)};
}
Cost two_shot_all_reduce_cost(const Params& params) {
  return {2 * others(params), 2 * share(params), share(params)};
}

Cost direct_barrier_cost(const Params& params) { return {others(params), 0, 0}; }

}  // namespace

constinit const Algorithm kOneShotAllReduce = {
    .op = Collective::kAllReduce,
    .name = "one_shot",
    .formula = "(P-1)(a + m b + m g)",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = one_shot_all_reduce,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = one_shot_all_reduce_cost,
};

constinit const Algorithm kTwoShotAllReduce = {
    .op = Collective::kAllReduce,
    .name = "two_shot",
    .formula = "2(P-1)a + 2(P-1)/P m b + (P-1)/P m g",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = two_shot_all_reduce,
    .chunks_of = chunk_per_rank,
    .rule = any_world,
    .closed_form = two_shot_all_reduce_cost,
};

constinit const Algorithm kDirectReduceScatter = {
    .op = Collective::kReduceScatter,
    .name = "direct",
    .formula = "(P-1)a + (P-1)/P m (b + g)",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = direct_reduce_scatter,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = direct_reduce_scatter_cost,
};

constinit const Algorithm kDirectAllGather = {
    .op = Collective::kAllGather,
    .name = "direct",
    .formula = "(P-1)a + (P-1)/P m b",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = direct_all_gather,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = direct_all_gather_cost,
};

constinit const Algorithm kDirectBroadcast = {
    .op = Collective::kBroadcast,
    .name = "direct",
    .formula = "(P-1)(a + m b)",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = direct_broadcast,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = direct_broadcast_cost,
};

constinit const Algorithm kDirectReduce = {
    .op = Collective::kReduce,
    .name = "direct",
    .formula = "(P-1)(a + m b + m g)",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = direct_reduce,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = direct_reduce_cost,
};

constinit const Algorithm kDirectGather = {
    .op = Collective::kGather,
    .name = "direct",
    .formula = "(P-1)a + (P-1)/P m b",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = direct_gather,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = direct_all_gather_cost,
};

constinit const Algorithm kDirectScatter = {
    .op = Collective::kScatter,
    .name = "direct",
    .formula = "(P-1)a + (P-1)/P m b",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = direct_scatter,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = direct_all_gather_cost,
};

constinit const Algorithm kDirectAllToAll = {
    .op = Collective::kAllToAll,
    .name = "direct",
    .formula = "(P-1)a + (P-1)/P m b",
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
    .generator = direct_all_to_all,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = direct_all_gather_cost,
};

constinit const Algorithm kDirectBarrier = {
    .op = Collective::kBarrier,
    .name = "direct",
    .formula = "(P-1)a",
    .source = "Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007",
    .generator = one_shot_all_reduce,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = direct_barrier_cost,
};

}  // namespace sinew::sched
