#include "sched/plan/grid.h"

#include <algorithm>
#include <optional>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/base/text.h"

namespace sinew::sched {

namespace {

constexpr std::array<std::string_view, 4> kAxisNames = {"tp", "cp", "pp", "dp"};
constexpr std::int64_t kWorldMax = std::int64_t{1} << 30;

std::array<Axis, 4> parse_order(std::string_view text, const PerAxis& sizes) {
  std::vector<Axis> order;
  for (const std::string_view name : split(text, ',')) {
    const Axis axis = parse_axis(trim(name));
    if (std::find(order.begin(), order.end(), axis) != order.end()) {
      throw UsageError("order '" + std::string(text) + "' names " + std::string(name_of(axis)) +
                       " twice; each axis comes once, as in " + std::string(kDefaultOrder));
    }
    order.push_back(axis);
  }
  for (const Axis axis : kAxes) {
    if (std::find(order.begin(), order.end(), axis) != order.end()) continue;
    if (sizes[axis] != 1) {
      throw UsageError(
          "order '" + std::string(text) + "' leaves out " + std::string(name_of(axis)) +
          ", which has size " + std::to_string(sizes[axis]) +
          "; only axes of size 1 may be left out, as in " + std::string(kDefaultOrder));
    }
    order.push_back(axis);
  }
  return {order[0], order[1], order[2], order[3]};
}

std::string describe(const PerAxis& sizes) {
  std::string text;
  for (const Axis axis : kAxes) {
    if (!text.empty()) text += " x ";
    text += std::string(name_of(axis)) + " " +
            (sizes[axis] == 0 ? "(the rest)" : std::to_string(sizes[axis]));
  }
  return text;
}

std::string divisors_of(int value) {
  std::string text;
  for (int d = 1; d <= value; ++d) {
    if (value % d == 0) text += (text.empty() ? "" : ", ") + std::to_string(d);
  }
  return text;
}

}  // namespace

std::string_view name_of(Axis axis) { return kAxisNames[static_cast<std::size_t>(axis)]; }

Axis parse_axis(std::string_view name) {
  for (const Axis axis : kAxes) {
    if (name_of(axis) == name) return axis;
  }
  throw UsageError("axis '" + std::string(name) + "' is unknown; the axes are tp, cp, pp, dp");
}

int& PerAxis::operator[](Axis axis) {
  switch (axis) {
    case Axis::kTp:
      return tp;
    case Axis::kCp:
      return cp;
    case Axis::kPp:
      return pp;
    case Axis::kDp:
      return dp;
  }
  __builtin_unreachable();
}

int PerAxis::operator[](Axis axis) const { return const_cast<PerAxis&>(*this)[axis]; }

Grid::Grid(const PerAxis& sizes, std::string_view order) : sizes_(sizes), world_(1) {
  for (const Axis axis : kAxes) {
    if (sizes[axis] < 1) {
      throw UsageError(std::string(name_of(axis)) + " " + std::to_string(sizes[axis]) +
                       " is not a size; every axis has at least 1 rank");
    }
  }
  order_ = parse_order(order, sizes);
  std::int64_t stride = 1;
  for (const Axis axis : order_) {
    strides_[axis] = static_cast<int>(stride);
    stride *= sizes_[axis];
    if (stride > kWorldMax) {
      throw UsageError(describe(sizes) + " is too large; the product is at most " +
                       std::to_string(kWorldMax) + " ranks");
    }
  }
  world_ = static_cast<int>(stride);
}

std::string Grid::order() const {
  std::string text;
  for (const Axis axis : order_) text += (text.empty() ? "" : ",") + std::string(name_of(axis));
  return text;
}

PerAxis Grid::coordinates_of(int rank) const {
  CHECK_GE(rank, 0);
  CHECK_LT(rank, world_);
  PerAxis coordinates;
  for (const Axis axis : kAxes) coordinates[axis] = rank / strides_[axis] % sizes_[axis];
  return coordinates;
}

int Grid::rank_of(const PerAxis& coordinates) const {
  int rank = 0;
  for (const Axis axis : kAxes) {
    CHECK_GE(coordinates[axis], 0);
    CHECK_LT(coordinates[axis], sizes_[axis]);
    rank += coordinates[axis] * strides_[axis];
  }
  return rank;
}

std::vector<int> Grid::group(int rank, Axis axis) const {
  return group(rank, std::span<const Axis>(&axis, 1));
}

std::vector<int> Grid::group(int rank, std::span<const Axis> axes) const {
  PerAxis base = coordinates_of(rank);
  for (const Axis axis : axes) base[axis] = 0;
  std::vector<int> members = {rank_of(base)};
  for (const Axis axis : order_) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
    const std::vector<int> inner = members;
    for (int coordinate = 1; coordinate < sizes_[axis]; ++coordinate) {
      for (const int member : inner) members.push_back(member + coordinate * strides_[axis]);
    }
  }
  return members;
}

std::vector<std::vector<int>> Grid::groups(std::span<const Axis> axes) const {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < world_; ++rank) {
    std::vector<int> members = group(rank, axes);
    if (members.front() == rank) all.push_back(std::move(members));
  }
  return all;
}

int Grid::neighbour(int rank, Axis axis, int distance) const {
  PerAxis coordinates = coordinates_of(rank);
  coordinates[axis] = mod(coordinates[axis] + distance, sizes_[axis]);
  return rank_of(coordinates);
}

Grid make_grid(int world, const PerAxis& sizes, std::string_view order) {
  if (world < 1) throw UsageError("a run has at least 1 rank, not " + std::to_string(world));
  PerAxis filled = sizes;
  std::optional<Axis> unknown;
  std::int64_t product = 1;
  for (const Axis axis : kAxes) {
    if (sizes[axis] == 0 && !unknown) {
      unknown = axis;
    } else if (sizes[axis] < 1) {
      throw UsageError(std::string(name_of(axis)) + " " + std::to_string(sizes[axis]) +
                       " is not a size; sizes are at least 1, and one may be 0 for what is left");
    } else {
      product = std::min(product * sizes[axis], kWorldMax * 2);
    }
  }
  if (world % product != 0 || (!unknown && product != world)) {
    throw UsageError(describe(sizes) + " does not fit " + std::to_string(world) + " rank" +
                     (world == 1 ? "" : "s") + ": the product of the axes must be " +
                     std::to_string(world) + ", so each size divides it: " + divisors_of(world));
  }
  if (unknown) filled[*unknown] = static_cast<int>(world / product);
  return Grid(filled, order);
}

}  // namespace sinew::sched
