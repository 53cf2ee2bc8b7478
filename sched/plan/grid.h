// Grid: how the ranks of a run are split over the axes TP x CP x PP x DP.
//
// Never does: communicate (model/ splits its communicator by these groups), choose sizes (plan.h
// does). Threads: plain values.
//
// Terms
//   axis        tp tensor, cp context, pp pipeline, dp data parallelism. Sequence parallelism has
//               the ranks of tp.
//   coordinate  a rank's position along one axis; rank = sum over axes of coordinate x stride.
//   order       the axes from the fastest-varying one (neighbouring ranks) to the slowest;
//               "tp,cp,pp,dp" by default, so that the axis with most traffic has the closest ranks.
//   group       the ranks that differ along the named axes only, by increasing coordinates.
//
// Invariants: rank_of(coordinates_of(r)) == r for every rank; the groups of an axis partition the
// ranks; every group of an axis has size(axis) members and holds its rank at position
// coordinates_of(rank)[axis].
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::sched {

enum class Axis : std::uint8_t { kTp, kCp, kPp, kDp };
inline constexpr std::array<Axis, 4> kAxes = {Axis::kTp, Axis::kCp, Axis::kPp, Axis::kDp};
inline constexpr std::string_view kDefaultOrder = "tp,cp,pp,dp";

[[nodiscard]] std::string_view name_of(Axis axis);
// Throws UsageError naming the four axes.
[[nodiscard]] Axis parse_axis(std::string_view name);

// One number per axis: sizes of a grid or coordinates of a rank.
struct PerAxis {
  int tp = 0;
  int cp = 0;
  int pp = 0;
  int dp = 0;
  [[nodiscard]] int& operator[](Axis axis);
  [[nodiscard]] int operator[](Axis axis) const;
  friend constexpr bool operator==(const PerAxis&, const PerAxis&) = default;
};

class Grid {
 public:
  // One rank.
  Grid() : Grid(PerAxis{1, 1, 1, 1}) {}
  // Throws UsageError when a size is below 1, the product exceeds 2^30, or the order is not a list
  // of axes, each once, that leaves out only axes of size 1 (those change nothing).
  explicit Grid(const PerAxis& sizes, std::string_view order = kDefaultOrder);

  [[nodiscard]] int world() const { return world_; }
  [[nodiscard]] const PerAxis& sizes() const { return sizes_; }
  [[nodiscard]] int size(Axis axis) const { return sizes_[axis]; }
  // Distance in ranks between neighbours along the axis.
  [[nodiscard]] int stride(Axis axis) const { return strides_[axis]; }
  // All four axes, fastest first; those left out at construction come last.
  [[nodiscard]] std::string order() const;

  [[nodiscard]] PerAxis coordinates_of(int rank) const;
  [[nodiscard]] int rank_of(const PerAxis& coordinates) const;

  // The ranks that share all coordinates with `rank` except those of the named axes. Of several
  // axes the one that comes first in the grid's order varies fastest, whatever the order of the
  // argument.
  [[nodiscard]] std::vector<int> group(int rank, Axis axis) const;
  [[nodiscard]] std::vector<int> group(int rank, std::span<const Axis> axes) const;
  // Every group of the axes, by increasing lowest rank.
  [[nodiscard]] std::vector<std::vector<int>> groups(std::span<const Axis> axes) const;
  // The next and the previous rank along the axis, round it.
  [[nodiscard]] int neighbour(int rank, Axis axis, int distance) const;

  friend bool operator==(const Grid&, const Grid&) = default;

 private:
  PerAxis sizes_;
  PerAxis strides_;
  std::array<Axis, 4> order_;
  int world_;
};

// The grid of a run with `world` ranks. A size of 0 is unknown; at most one may be, and it becomes
// what is left. Throws UsageError when the product is not the number of ranks, naming the sizes
// that would be legal.
[[nodiscard]] Grid make_grid(int world, const PerAxis& sizes,
                             std::string_view order = kDefaultOrder);

}  // namespace sinew::sched
