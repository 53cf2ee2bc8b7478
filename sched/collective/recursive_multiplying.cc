// Recursive multiplying: recursive doubling in a larger radix: in each stage groups of f ranks
// exchange all they have, each with all others of its group.
//
// Terms: the stages' f are factors of P, 4 before 3 before 2. A stage of weight w joins the ranks
// that differ in that digit, w apart. In an all-reduce all members of a group sum in the order of
// ranks, so that all ranks hold the same bits. A world that has no other prime factors than 2
// and 3.
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
#include "sched/collective/rank_order.h"

namespace sinew::sched {

namespace {

// Empty when there is another prime factor than 2 and 3, or for 1.
std::vector<int> factors_of(int number) {
  std::vector<int> factors;
  for (const int factor : {4, 3, 2}) {
    for (; number % factor == 0; number /= factor) factors.push_back(factor);
  }
  if (number != 1) factors.clear();
  return factors;
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

void recursive_multiplying_all_reduce(const Params&, Builder& b) {
  int weight = 1;
  for (const int factor : factors_of(b.world())) {
    std::vector<Messages> inbox(static_cast<std::size_t>(b.world()));
    for_each_pair(b.world(), weight, factor, [&](int rank, int other) {
      inbox[static_cast<std::size_t>(other)].push_back(
          b.post({.chunk = 0, .chunks = b.chunks(), .from = rank, .to = other}));
    });
    for (int rank = 0; rank < b.world(); ++rank) {
      Messages& messages = inbox[static_cast<std::size_t>(rank)];
      std::sort(messages.begin(), messages.end(),
                [](const auto& x, const auto& y) { return x.move.from < y.move.from; });
      sum_in_rank_order(b, rank, 0, b.chunks(), messages);
    }
    weight *= factor;
  }
}

void recursive_multiplying_all_gather(const Params&, Builder& b) {
  int weight = 1;
  for (const int factor : factors_of(b.world())) {
    for_each_pair(b.world(), weight, factor, [&](int rank, int other) {
      b.copy({.chunk = rank / weight * weight, .chunks = weight, .from = rank, .to = other});
    });
    weight *= factor;
  }
}

double turns_of(int number) {
  int turns = 0;
  for (const int factor : factors_of(number)) turns += factor - 1;
  return turns;
}

Cost recursive_multiplying_all_reduce_cost(const Params& params) {
  const double turns = turns_of(params.world);
  return {turns, turns, turns};
}

Cost recursive_multiplying_all_gather_cost(const Params& params) {
  return {turns_of(params.world), (params.world - 1.0) / params.world, 0};
}

std::string factors_two_and_three(const Params& params) {
  if (params.world == 1 || !factors_of(params.world).empty()) return {};
  return "world " + std::to_string(params.world) +
         " has other prime factors than 2 and 3; legal values: 1, 2, 3, 4, 6, 8, 9, 12, 16, ...";
}

}  // namespace

constinit const Algorithm kRecursiveMultiplyingAllReduce = {
    .op = Collective::kAllReduce,
    .name = "recursive_multiplying",
    .formula = "F(a + m b + m g), F = sum of f-1, P = product of f <= 4",
    .source = "Ruefenacht, Bull, Booth, Parallel Computing 2017",
    .generate = recursive_multiplying_all_reduce,
    .chunks_per_block = one_chunk,
    .refuse = factors_two_and_three,
    .cost = recursive_multiplying_all_reduce_cost,
};

constinit const Algorithm kRecursiveMultiplyingAllGather = {
    .op = Collective::kAllGather,
    .name = "recursive_multiplying",
    .formula = "F a + (P-1)/P m b, F = sum of f-1, P = product of f <= 4",
    .source = "Ruefenacht, Bull, Booth, Parallel Computing 2017",
    .generate = recursive_multiplying_all_gather,
    .chunks_per_block = one_chunk,
    .refuse = factors_two_and_three,
    .cost = recursive_multiplying_all_gather_cost,
};

}  // namespace sinew::sched
