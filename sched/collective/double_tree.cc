// Double tree: the vector is cut in two halves, each is pipelined through a binary tree of its own,
// and the trees are such that every rank sends and receives all the time.
//
// Terms: both trees are in-order binary trees of the P-1 ranks other than the root, the second one
// moved on by one rank: inner ranks have even places, so no rank has children in both. The root
// feeds both tops. Each half is cut in k pieces. Time is cut in slots; an edge is used in every
// other slot, and which of the two it is (its color) is chosen so that a rank sends at most one and
// receives at most one piece per slot. The calls are made in the order of slots, so ports that
// serve in program order keep the plan. A reduce is the broadcast backwards, an all-reduce a reduce
// to rank 0 and a broadcast from it.
//
// Cost: S <= 2L + 2k - 2 slots, of m/2k bytes each; S is computed from the colored trees, and the
// schedule may be done at most one slot (all-reduce: three) earlier. With k about
// sqrt(m b (L-1) / 2a) a broadcast takes about 2(L-1) a + m b + 2 sqrt(2 (L-1) m a b): the
// bandwidth bound with log P latency. Any world. Sanders, Speck, Traeff, "Two-tree algorithms for
// full bandwidth broadcast, reduction and scan", Parallel Computing 2009.
//
// Picture: broadcast double_tree, 4 ranks
//   round 1   0 -c0-> 2
//   round 2   0 -c1-> 1  2 -c0-> 3
//   round 3   1 -c1-> 3  2 -c0-> 1
//   round 4   1 -c1-> 2
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 0      . .      . .      . .
//   round 1    0 0      . .      0 .      . .
//   round 2    0 0      . 0      0 .      0 .
//   round 3    0 0      0 0      0 .      0 0
//   round 4    0 0      0 0      0 0      0 0
//
// Picture: reduce double_tree, 4 ranks
//   round 1   1 -c0+-> 2  2 -c1+-> 1
//   round 2   3 -c1+-> 1
//   round 3   1 -c1+-> 0  3 -c0+-> 2
//   round 4   2 -c0+-> 0
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 0      1 1      2 2      3 3
//   round 1    0 0      1 12     12 2     3 3
//   round 2    0 0      1 123    12 2     3 3
//   round 3    0 *      1 123    123 2    3 3
//   round 4    * *      1 123    123 2    3 3
#include <algorithm>
#include <string>
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

struct Edge {
  int parent;  // positions
  int child;
};

// The edges of the in-order tree of positions 1..count, every parent's before its children's.
std::vector<Edge> in_order_tree(int count) {
  struct Subtree {
    int top;
    int height;  // the lowest bit of top
  };
  std::vector<Edge> edges;
  if (count < 1) return edges;
  const int top = 1 << floor_log2(count);
  std::vector<Subtree> open = {{top, top}};
  for (std::size_t next = 0; next < open.size(); ++next) {
    const Subtree tree = open[next];
    int below = tree.height / 2;
    if (below == 0) continue;
    edges.push_back({tree.top, tree.top - below});
    open.push_back({tree.top - below, below});
    while (below > 0 && tree.top + below > count) below /= 2;
    if (below == 0) continue;
    edges.push_back({tree.top, tree.top + below});
    open.push_back({tree.top + below, below});
  }
  return edges;
}

// An edge between ranks. In slot `slot`, `slot + 2`, ... it carries the pieces of its tree.
struct RankEdge {
  int tree;
  int parent;
  int child;
  int above = -1;  // the edge into `parent`, -1 at the root
  int color = -1;  // the parity of its slots
  int slot = -1;
};

// Both trees, from the root down. The second one is the first with every rank one position on, so
// that who has children in one tree is a leaf of the other.
std::vector<RankEdge> both_trees(int world, int root) {
  const int others = world - 1;
  std::vector<RankEdge> edges;
  if (others == 0) return edges;
  std::vector<int> into(static_cast<std::size_t>(2 * world), -1);  // [tree][rank]
  const auto add = [&](int tree, int parent, int child) {
    const auto base = static_cast<std::size_t>(tree * world);
    const int above = into[base + static_cast<std::size_t>(parent)];
    into[base + static_cast<std::size_t>(child)] = static_cast<int>(edges.size());
    edges.push_back({tree, parent, child, above});
  };
  const auto rank_at = [&](int tree, int position) {
    return mod(root + 1 + mod(position - 1 - tree, others), world);
  };
  for (const int tree : {0, 1}) add(tree, root, rank_at(tree, 1 << floor_log2(others)));
  for (const Edge& edge : in_order_tree(others)) {
    for (const int tree : {0, 1}) add(tree, rank_at(tree, edge.parent), rank_at(tree, edge.child));
  }
  return edges;
}

// Two colors such that the edges out of a rank differ, and those into a rank: at most two each, so
// walking from edge to edge over alternating ends visits paths and even cycles.
void color(std::vector<RankEdge>& edges, int world) {
  std::vector<std::vector<int>> out(static_cast<std::size_t>(world));
  std::vector<std::vector<int>> in(static_cast<std::size_t>(world));
  for (std::size_t i = 0; i < edges.size(); ++i) {
    out[static_cast<std::size_t>(edges[i].parent)].push_back(static_cast<int>(i));
    in[static_cast<std::size_t>(edges[i].child)].push_back(static_cast<int>(i));
  }
  const auto other = [](const std::vector<int>& pair, int edge) {
    return pair.size() < 2 ? -1 : pair[0] == edge ? pair[1] : pair[0];
  };
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].color >= 0) continue;
    edges[i].color = edges[i].tree;
    for (const bool over_parent_first : {true, false}) {
      bool over_parent = over_parent_first;
      int at = static_cast<int>(i);
      while (true) {
        const RankEdge& edge = edges[static_cast<std::size_t>(at)];
        const int next = over_parent ? other(out[static_cast<std::size_t>(edge.parent)], at)
                                     : other(in[static_cast<std::size_t>(edge.child)], at);
        if (next < 0 || edges[static_cast<std::size_t>(next)].color >= 0) break;
        edges[static_cast<std::size_t>(next)].color = 1 - edge.color;
        over_parent = !over_parent;
        at = next;
      }
    }
  }
}

// The slots in which piece 0 travels: the first one of the right color behind the edge above.
int assign_slots(std::vector<RankEdge>& edges) {
  int last = -1;
  for (RankEdge& edge : edges) {
    const int earliest = edge.above < 0 ? 0 : edges[static_cast<std::size_t>(edge.above)].slot + 1;
    edge.slot = earliest + mod(edge.color - earliest, 2);
    last = std::max(last, edge.slot);
  }
  return last + 1;
}

struct Plan {
  std::vector<RankEdge> edges;
  int slots = 0;  // until piece 0 has arrived everywhere
};

Plan plan_of(int world, int root) {
  Plan plan{both_trees(world, root), 0};
  color(plan.edges, world);
  plan.slots = assign_slots(plan.edges);
  return plan;
}

// Slots of a pipelined broadcast of `pieces` per tree; none for one rank.
int slots_of(int world, int pieces) {
  return world == 1 ? 0 : plan_of(world, 0).slots + 2 * (pieces - 1);
}

// Calls visit(edge, chunk) for each transfer of a broadcast in the order of slots.
template <typename Visit>
void for_each_transfer(const Plan& plan, int pieces, bool backwards, Visit visit) {
  const int slots = plan.slots + 2 * (pieces - 1);
  for (int i = 0; i < slots; ++i) {
    const int slot = backwards ? slots - 1 - i : i;
    for (const RankEdge& edge : plan.edges) {
      const int piece = (slot - edge.slot) / 2;
      if (slot < edge.slot || (slot - edge.slot) % 2 != 0 || piece >= pieces) continue;
      visit(edge, edge.tree * pieces + piece);
    }
  }
}

void broadcast_from(Builder& b, int root) {
  for_each_transfer(
      plan_of(b.world(), root), b.chunks() / 2, false, [&](const RankEdge& edge, int chunk) {
        b.copy({.chunk = chunk, .from = edge.parent, .to = edge.child, .lane = edge.tree});
      });
}

void reduce_to(Builder& b, int root) {
  for_each_transfer(
      plan_of(b.world(), root), b.chunks() / 2, true, [&](const RankEdge& edge, int chunk) {
        b.reduce({.chunk = chunk, .from = edge.child, .to = edge.parent, .lane = edge.tree});
      });
}

void double_tree_broadcast(const Params&, Builder& b) { broadcast_from(b, b.root()); }

void double_tree_reduce(const Params&, Builder& b) { reduce_to(b, b.root()); }

void double_tree_all_reduce(const Params&, Builder& b) {
  reduce_to(b, 0);
  broadcast_from(b, 0);
}

int double_tree_chunks(const Params& params) { return 2 * params.segments; }

std::string double_tree_refuse(const Params& params) {
  if (params.segments <= kMaxChunks / 2) return {};
  return "segments " + std::to_string(params.segments) + " is too many; legal values: 1 to " +
         std::to_string(kMaxChunks / 2);
}

Cost double_tree_broadcast_cost(const Params& params) {
  const double slots = slots_of(params.world, params.segments);
  return {slots, slots / (2 * params.segments), 0};
}
Cost double_tree_reduce_cost(const Params& params) {
  const Cost broadcast = double_tree_broadcast_cost(params);
  return {broadcast.rounds, broadcast.bytes, broadcast.bytes};
}
Cost double_tree_all_reduce_cost(const Params& params) {
  const Cost broadcast = double_tree_broadcast_cost(params);
  return {2 * broadcast.rounds, 2 * broadcast.bytes, broadcast.bytes};
}

}  // namespace

constinit const Algorithm kDoubleTreeAllReduce = {
    .op = Collective::kAllReduce,
    .name = "double_tree",
    .formula = "2S a + S/k m b + S/2k m g, S <= 2L + 2k - 2",
    .source = "Sanders, Speck, Traeff, Parallel Computing 2009",
    .generator = double_tree_all_reduce,
    .chunks_of = double_tree_chunks,
    .rule = double_tree_refuse,
    .closed_form = double_tree_all_reduce_cost,
    .segmented = true,
    .slack = 3,
};

constinit const Algorithm kDoubleTreeBroadcast = {
    .op = Collective::kBroadcast,
    .name = "double_tree",
    .formula = "S a + S/2k m b, S <= 2L + 2k - 2",
    .source = "Sanders, Speck, Traeff, Parallel Computing 2009",
    .generator = double_tree_broadcast,
    .chunks_of = double_tree_chunks,
    .rule = double_tree_refuse,
    .closed_form = double_tree_broadcast_cost,
    .segmented = true,
    .slack = 1,
};

constinit const Algorithm kDoubleTreeReduce = {
    .op = Collective::kReduce,
    .name = "double_tree",
    .formula = "S a + S/2k m (b + g), S <= 2L + 2k - 2",
    .source = "Sanders, Speck, Traeff, Parallel Computing 2009",
    .generator = double_tree_reduce,
    .chunks_of = double_tree_chunks,
    .rule = double_tree_refuse,
    .closed_form = double_tree_reduce_cost,
    .segmented = true,
    .slack = 1,
};

}  // namespace sinew::sched
