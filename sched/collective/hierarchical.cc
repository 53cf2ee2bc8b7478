// Hierarchical: P = G N ranks are N groups of G neighbours. The vector is reduce-scattered inside
// each group, each of its G parts is all-reduced between the N ranks that hold it, one per group,
// and the results are all-gathered inside the groups: only 1/G of the vector leaves a rank's group.
//
// The row of the table composes direct with circulant for the groups that it is given: those are
// hosts, whose ranks map each other's memory. There the sends of direct's rounds overlap, and a
// rank sums what all others sent in one pass, where circulant reads and writes partial sums in
// every round. Without groups it composes circulant with circulant, for the largest G that divides
// P and is at most its square root (a prime world is one level of circulant); hierarchical.h takes
// any rows and any G. Cost: the levels' one after the other, the outer one for m/G bytes. Without
// given groups 2 ceil(log2 G) + 2 ceil(log2 N) rounds, with them 2(G-1) + 2 ceil(log2 N), and the
// bandwidth bound. Any world. Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 7; Cho, Finkler,
// Serrano, Kung, Hunter, BlueConnect, SysML 2019.
//
// Picture: all_reduce hierarchical, 4 ranks
//   round 1   0 -c2..3+-> 1  1 -c0..1+-> 0  2 -c2..3+-> 3  3 -c0..1+-> 2
//   round 2   0 -c1+-> 2  1 -c3+-> 3  2 -c0+-> 0  3 -c2+-> 1
//   round 3   0 -c0-> 2  1 -c2-> 3  2 -c1-> 0  3 -c3-> 1
//   round 4   0 -c0..1-> 1  1 -c2..3-> 0  2 -c0..1-> 3  3 -c2..3-> 2
//
//   held       rank 0     rank 1     rank 2     rank 3
//   start      0 0 0 0    1 1 1 1    2 2 2 2    3 3 3 3
//   round 1    01 01 0 0  1 1 01 01  23 23 2 2  3 3 23 23
//   round 2    * 01 0 0   1 1 * 01   23 * 2 2   3 3 23 *
//   round 3    * * 0 0    1 1 * *    * * 2 2    3 3 * *
//   round 4    * * * *    * * * *    * * * *    * * * *
#include "sched/collective/hierarchical.h"

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

Contract contract_for(Collective op, int world, int chunks_per_block) {
  return {.op = op, .world = world, .root = 0, .chunks_per_block = chunks_per_block};
}

// Runs a reduce-scatter or all-gather inside every group: its block i is the i-th of G equal parts.
void write_inside(Builder& b, const Algorithm& row, int group) {
  const Params params = {.world = group};
  CHECK_EQ(row.chunks_per_block(params), 1);
  for (int first = 0; first < b.world(); first += group) {
    Builder::Part part{.ranks = {}, .chunk = 0, .scale = b.chunks() / group};
    for (int i = 0; i < group; ++i) part.ranks.push_back(first + i);
    Builder inner(b, contract_for(row.op, group, 1), std::move(part));
    row.generate(params, inner);
  }
}

// All-reduces the i-th part between the ranks of that place in their groups, for all i.
void write_between(Builder& b, const Algorithm& row, int group) {
  const Params params = {.world = b.world() / group};
  const int chunks = b.chunks() / group;
  for (int i = 0; i < group; ++i) {
    Builder::Part part{.ranks = {}, .chunk = i * chunks, .scale = 1};
    for (int rank = i; rank < b.world(); rank += group) part.ranks.push_back(rank);
    Builder outer(b, contract_for(row.op, params.world, chunks), std::move(part));
    row.generate(params, outer);
  }
}

}  // namespace

std::string refuse_levels(int world, const Levels& levels) {
  if (levels.group < 1 || world % levels.group != 0) {
    return "groups of " + std::to_string(levels.group) + " ranks do not divide world " +
           std::to_string(world) + "; legal values: its divisors";
  }
  for (const Algorithm* row : {levels.reduce_scatter, levels.all_gather}) {
    std::string refusal = row->refuse({.world = levels.group});
    if (!refusal.empty()) return refusal;
  }
  return levels.all_reduce->refuse({.world = world / levels.group});
}

int level_chunks(int world, const Levels& levels) {
  return levels.group * levels.all_reduce->chunks_per_block({.world = world / levels.group});
}

void write_levels(Builder& b, const Levels& levels) {
  write_inside(b, *levels.reduce_scatter, levels.group);
  write_between(b, *levels.all_reduce, levels.group);
  write_inside(b, *levels.all_gather, levels.group);
}

Cost levels_cost(int world, const Levels& levels) {
  const Cost scatter = levels.reduce_scatter->cost({.world = levels.group});
  const Cost between = levels.all_reduce->cost({.world = world / levels.group});
  const Cost gather = levels.all_gather->cost({.world = levels.group});
  return {scatter.rounds + between.rounds + gather.rounds,
          scatter.bytes + between.bytes / levels.group + gather.bytes,
          scatter.reduced + between.reduced / levels.group};
}

Schedule hierarchical_all_reduce(int world, const Levels& levels, std::optional<int> keep) {
  const std::string refusal = refuse_levels(world, levels);
  if (!refusal.empty()) throw UsageError("all_reduce by hierarchical: " + refusal);
  Builder builder(contract_for(Collective::kAllReduce, world, level_chunks(world, levels)), keep);
  write_levels(builder, levels);
  return builder.finish("hierarchical");
}

namespace {

Levels levels_of(const Params& params) {
  if (params.group != 0) {
    return {.reduce_scatter = &kDirectReduceScatter,
            .all_reduce = &kCirculantAllReduce,
            .all_gather = &kDirectAllGather,
            .group = params.group};
  }
  int group = 1;
  for (int divisor = 1; divisor * divisor <= params.world; ++divisor) {
    if (params.world % divisor == 0) group = divisor;
  }
  return {.reduce_scatter = &kCirculantReduceScatter,
          .all_reduce = &kCirculantAllReduce,
          .all_gather = &kCirculantAllGather,
          .group = group};
}

void generate_row(const Params& params, Builder& b) { write_levels(b, levels_of(params)); }
int chunks_of_row(const Params& params) { return level_chunks(params.world, levels_of(params)); }
Cost cost_of_row(const Params& params) { return levels_cost(params.world, levels_of(params)); }
std::string refuse_row(const Params& params) {
  return params.group == 0 ? any_world(params) : refuse_levels(params.world, levels_of(params));
}

}  // namespace

constinit const Algorithm kHierarchicalAllReduce = {
    .op = Collective::kAllReduce,
    .name = "hierarchical",
    .formula = "2(ceil(log2 G) + ceil(log2 P/G))a + 2(P-1)/P m b + (P-1)/P m g, G <= sqrt(P)",
    .source = "Cho, Finkler, Serrano, Kung, Hunter, SysML 2019",
    .generator = generate_row,
    .chunks_of = chunks_of_row,
    .rule = refuse_row,
    .closed_form = cost_of_row,
};

}  // namespace sinew::sched
