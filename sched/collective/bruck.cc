// Bruck: everything travels over distances that are one digit of a number in radix r, so that few
// large messages take the place of many small ones.
//
// Terms: hops as in hops.h, radix r: in each, every rank sends to the rank d w away.
//
// All-gather: before the hops of weight w rank i holds the blocks of ranks i .. i+w-1; it gets the
// next w from each of the ranks i + w, i + 2w, ... (r-1) hops per digit, (P-1)/P of the vector.
//
// All-to-all: the block for the rank j further on waits at position j; in a hop all positions with
// that digit move on together. A block makes one hop per digit of j that is not 0, so that more
// bytes are sent than the least: (r-1)/r of the vector per digit of P = r^i. Radix 2 has the fewest
// hops, a larger one the fewer bytes. Any world. Bruck, Ho, Kipnis, Upfal, Weathersby, TPDS 1997.
//
// Picture: all_gather bruck, 4 ranks
//   round 1   0 -c0-> 3  1 -c1-> 0  2 -c2-> 1  3 -c3-> 2
//   round 2   0 -c0..1-> 2  1 -c1..2-> 3  2 -c2..3-> 0  3 -c3,0-> 1
//
//   held       rank 0   rank 1   rank 2   rank 3
//   start      0 . . .  . 1 . .  . . 2 .  . . . 3
//   round 1    0 1 . .  . 1 2 .  . . 2 3  0 . . 3
//   round 2    0 1 2 3  0 1 2 3  0 1 2 3  0 1 2 3
//
// Picture: all_to_all bruck, 4 ranks
//   round 1   0 -c1,3-> 1  1 -c2,0-> 2  2 -c3,1-> 3  3 -c0,2-> 0
//   round 2   0 -c2,2-> 2  1 -c3,3-> 3  2 -c0,0-> 0  3 -c1,1-> 1
//
//   held       rank 0     rank 1     rank 2     rank 3
//   start      0 0 0 0    1 1 1 1    2 2 2 2    3 3 3 3
//   round 1    03 0 03 0  1 01 1 01  12 2 12 2  3 23 3 23
//   round 2    * 0 03 0   1 * 1 01   12 2 * 2   3 23 3 *
#include <algorithm>
#include <vector>

#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"
#include "sched/collective/hops.h"

namespace sinew::sched {

namespace {

void bruck_all_gather(const Params& params, Builder& b) {
  const int world = b.world();
  for (const Hop& hop : hops_of(world, params.radix)) {
    const int blocks = std::min(hop.weight, world - hop.distance());
    for (int from = 0; from < world; ++from) {
      b.copy(
          {.chunk = from, .chunks = blocks, .from = from, .to = mod(from - hop.distance(), world)});
    }
  }
}

// Which hops a position takes, as indices.
class Positions {
 public:
  Positions(int world, int radix) : radix_(radix), hops_(hops_of(world, radix)) {
    first_.resize(static_cast<std::size_t>(world), -1);
    last_.resize(static_cast<std::size_t>(world), -1);
    for (int hop = 0; hop < static_cast<int>(hops_.size()); ++hop) {
      for (int position = 1; position < world; ++position) {
        if (!moves(position, hop)) continue;
        const auto at = static_cast<std::size_t>(position);
        if (first_[at] < 0) first_[at] = hop;
        last_[at] = hop;
      }
    }
  }

  [[nodiscard]] const std::vector<Hop>& hops() const { return hops_; }
  [[nodiscard]] bool moves(int position, int hop) const {
    const Hop& h = hops_[static_cast<std::size_t>(hop)];
    return position / h.weight % radix_ == h.digit;
  }
  [[nodiscard]] int first(int position) const { return first_[static_cast<std::size_t>(position)]; }
  [[nodiscard]] int last(int position) const { return last_[static_cast<std::size_t>(position)]; }

  // Whether what arrives at this position would, in place, overwrite an input that is not sent
  // before: that for the rank it came from, at the opposite position.
  [[nodiscard]] bool arrives_early(int position) const {
    return first(world() - position) >= last(position);
  }
  // Where a position rests after a hop: in two places in turn, so that it never arrives where it is
  // being sent from.
  [[nodiscard]] Place rest_after(int position, int hop) const {
    int taken = 0;
    for (int earlier = 0; earlier <= hop; ++earlier) taken += moves(position, earlier) ? 1 : 0;
    return {Space::kScratch, position + taken % 2 * world()};
  }

 private:
  [[nodiscard]] int world() const { return static_cast<int>(first_.size()); }

  int radix_;
  std::vector<Hop> hops_;
  std::vector<int> first_;  // [world], -1 of position 0
  std::vector<int> last_;
};

void bruck_all_to_all(const Params& params, Builder& b) {
  const int world = b.world();
  const Positions positions(world, params.radix);
  for (int hop = 0; hop < static_cast<int>(positions.hops().size()); ++hop) {
    std::vector<Relay> relays;
    for (int from = 0; from < world; ++from) {
      const int to = mod(from + positions.hops()[static_cast<std::size_t>(hop)].distance(), world);
      if (!b.kept(from) && !b.kept(to)) continue;
      Relay relay{.items = {}, .from = from, .to = to};
      for (int j = 1; j < world; ++j) {
        if (!positions.moves(j, hop)) continue;
        const bool starts = hop == positions.first(j);
        const bool ends = hop == positions.last(j) && !positions.arrives_early(j);
        relay.items.push_back(
            {starts ? Place{Space::kInput, mod(from + j, world)} : positions.rest_after(j, hop - 1),
             ends ? Place{Space::kOutput, mod(to - j, world)} : positions.rest_after(j, hop)});
      }
      relays.push_back(std::move(relay));
    }
    b.exchange(relays);
  }
  for (int rank = 0; rank < world; ++rank) {
    if (!b.kept(rank)) continue;
    for (int j = 1; j < world; ++j) {
      if (positions.arrives_early(j))
        b.settle(rank, {positions.rest_after(j, positions.last(j)),
                        {Space::kOutput, mod(rank - j, world)}});
    }
  }
}

Cost bruck_all_gather_cost(const Params& params) {
  return {static_cast<double>(hops_of(params.world, params.radix).size()),
          (params.world - 1.0) / params.world, 0};
}

Cost bruck_all_to_all_cost(const Params& params) {
  const std::vector<Hop> hops = hops_of(params.world, params.radix);
  double blocks = 0;
  for (const Hop& hop : hops) {
    // Positions with this digit at this weight: in whole turns of the digit, and in the last one.
    const int turn = hop.weight * params.radix;
    const int turns = params.world / turn;
    const int rest = params.world % turn - hop.distance();
    blocks += turns * hop.weight + std::clamp(rest, 0, hop.weight);
  }
  return {static_cast<double>(hops.size()), blocks / params.world, 0};
}

constexpr const char* kSource = "Bruck, Ho, Kipnis, Upfal, Weathersby, TPDS 1997";

}  // namespace

constinit const Algorithm kBruckAllGather = {
    .op = Collective::kAllGather,
    .name = "bruck",
    .formula = "(r-1) log_r P a + (P-1)/P m b for P = r^i, else fewer rounds than with the next",
    .source = kSource,
    .generator = bruck_all_gather,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = bruck_all_gather_cost,
    .radix = 2,
};

constinit const Algorithm kBruckAllToAll = {
    .op = Collective::kAllToAll,
    .name = "bruck",
    .formula = "(r-1) log_r P (a + m b / r) for P = r^i, else less than with the next",
    .source = kSource,
    .generator = bruck_all_to_all,
    .chunks_of = one_chunk,
    .rule = any_world,
    .closed_form = bruck_all_to_all_cost,
    .radix = 2,
};

}  // namespace sinew::sched
