// Recursive multiplying: recursive doubling in a larger radix: in each stage groups of f ranks
// exchange all they have, each with all others of its group.
//
// Terms: the stages' f are factors of P, none above the radix r, the largest first. A stage of
// weight w joins the ranks that differ in that digit, w apart. In an all-reduce all members of a
// group sum in the order of ranks, so that all ranks hold the same bits. Where P has a larger prime
// factor, Q > P/2 ranks take part, a product of as many r as fit and one more factor, and the
// others fold (fold.h); an all-gather does not go then.
//
// Cost: with one port f-1 rounds per stage, more than doubling has; with f-1 ports (`ports` in a
// topology, or mapped memory) a stage is one round, and log4 P of them do. Ruefenacht, Bull, Booth,
// Parallel Computing 2017.
//
// Picture: all_reduce recursive_multiplying, 4 ranks
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
// Picture: all_gather recursive_multiplying, 4 ranks
//   round 1   0 -c0-> 1  1 -c1-> 2  2 -c2-> 3  3 -c3-> 0
//   round 2   0 -c0-> 2  1 -c1-> 3  2 -c2-> 0  3 -c3-> 1
//   round 3   0 -c0-> 3  1 -c1-> 0  2 -c2-> 1  3 -c3-> 2
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 . . .  . 1 . .  . . 2 .  . . . 3
//   round 1    0 . . 3  0 1 . .  . 1 2 .  . . 2 3
//   round 2    0 . 2 3  0 1 . 3  0 1 2 .  . 1 2 3
//   round 3    0 1 2 3  0 1 2 3  0 1 2 3  0 1 2 3
#include <algorithm>
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"
#include "sched/collective/fold.h"
#include "sched/collective/rank_order.h"

namespace sinew::sched {

namespace {

struct Stages {
  std::vector<int> factors;
  int participants = 1;  // their product
};

Stages stages_of(const Params& params) {
  Stages stages;
  int rest = params.world;
  for (int factor = params.radix; factor > 1; --factor) {
    for (; rest % factor == 0; rest /= factor) stages.factors.push_back(factor);
  }
  stages.participants = params.world;
  if (rest == 1) return stages;
  stages = {};
  const auto add = [&stages](int factor) {
    stages.factors.push_back(factor);
    stages.participants *= factor;
  };
  while (stages.participants * params.radix <= params.world) add(params.radix);
  if (const int last = params.world / stages.participants; last > 1) add(last);
  return stages;
}

// Calls visit(rank, other) for every ordered pair of a stage's groups, in turns of one message per
// rank.
template <typename Visit>
void for_each_pair(int world, int weight, int factor, Visit visit) {
  for (int turn = 1; turn < factor; ++turn) {
    for (int rank = 0; rank < world; ++rank) {
      const int digit = rank / weight % factor;
      visit(rank, rank + (mod(digit + turn, factor) - digit) * weight);
    }
  }
}

void recursive_multiplying_all_reduce(const Params& params, Builder& b) {
  const Stages stages = stages_of(params);
  const Fold fold(b.world(), stages.participants);
  fold.reduce_in(b);
  int weight = 1;
  for (const int factor : stages.factors) {
    std::vector<Messages> inbox(static_cast<std::size_t>(stages.participants));
    for_each_pair(stages.participants, weight, factor, [&](int place, int other) {
      inbox[static_cast<std::size_t>(other)].push_back(b.post(
          {.chunk = 0, .chunks = b.chunks(), .from = fold.rank(place), .to = fold.rank(other)}));
    });
    for (int place = 0; place < stages.participants; ++place) {
      Messages& messages = inbox[static_cast<std::size_t>(place)];
      std::sort(messages.begin(), messages.end(),
                [](const auto& x, const auto& y) { return x.move.from < y.move.from; });
      sum_in_rank_order(b, fold.rank(place), 0, b.chunks(), messages);
    }
    weight *= factor;
  }
  fold.copy_out(b);
}

void recursive_multiplying_all_gather(const Params& params, Builder& b) {
  int weight = 1;
  for (const int factor : stages_of(params).factors) {
    for_each_pair(b.world(), weight, factor, [&](int rank, int other) {
      b.copy({.chunk = rank / weight * weight, .chunks = weight, .from = rank, .to = other});
    });
    weight *= factor;
  }
}

double turns_of(const Stages& stages) {
  double turns = 0;
  for (const int factor : stages.factors) turns += factor - 1;
  return turns;
}

Cost recursive_multiplying_all_reduce_cost(const Params& params) {
  const Stages stages = stages_of(params);
  const double turns = turns_of(stages);
  // Ranks that wait for their pair come a message late into the first stage's turns, so that some
  // ports are asked for twice at a time: up to three rounds more than are counted.
  const double extra = stages.participants == params.world ? 0 : 1;
  return {turns + 5 * extra, turns + 5 * extra, turns + extra};
}

Cost recursive_multiplying_all_gather_cost(const Params& params) {
  return {turns_of(stages_of(params)), (params.world - 1.0) / params.world, 0};
}

std::string no_larger_factor(const Params& params) {
  if (stages_of(params).participants == params.world) return {};
  const std::string radix = std::to_string(params.radix);
  return "world " + std::to_string(params.world) + " has a prime factor above the radix " + radix +
         "; legal values: products of factors up to " + radix;
}

}  // namespace

constinit const Algorithm kRecursiveMultiplyingAllReduce = {
    .op = Collective::kAllReduce,
    .name = "recursive_multiplying",
    .formula =
        "F(a + m b + m g), F = sum of f-1, P = product of f <= r; else up to 5 rounds of m more, F "
        "of Q",
    .source = "Ruefenacht, Bull, Booth, Parallel Computing 2017",
    .generator = recursive_multiplying_all_reduce,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = recursive_multiplying_all_reduce_cost,
    .slack = 3,
    .radix = 4,
};

constinit const Algorithm kRecursiveMultiplyingAllGather = {
    .op = Collective::kAllGather,
    .name = "recursive_multiplying",
    .formula = "F a + (P-1)/P m b, F = sum of f-1, P = product of f <= r",
    .source = "Ruefenacht, Bull, Booth, Parallel Computing 2017",
    .generator = recursive_multiplying_all_gather,
    .chunks_of = one_chunk,
    .rule = no_larger_factor,
    .closed_form = recursive_multiplying_all_gather_cost,
    .radix = 4,
};

}  // namespace sinew::sched
