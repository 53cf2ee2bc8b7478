// Laws of the grid: ranks and coordinates are one to one in every order, groups partition the
// ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sched/base/error.h"
#include "sched/plan/grid.h"

namespace sinew::sched {
namespace {

std::vector<std::string> orders() {
  std::vector<std::string> names = {"cp", "dp", "pp", "tp"};
  std::vector<std::string> all;
  do {
    all.push_back(names[0] + "," + names[1] + "," + names[2] + "," + names[3]);
  } while (std::next_permutation(names.begin(), names.end()));
  return all;
}

TEST(Grid, RanksAndCoordinatesAreOneToOneInAllOrdersUpTo24Ranks) {
  for (int world = 1; world <= 24; ++world) {
    for (int tp = 1; tp <= world; ++tp) {
      for (int cp = 1; tp * cp <= world; ++cp) {
        for (int pp = 1; tp * cp * pp <= world; ++pp) {
          if (world % (tp * cp * pp) != 0) continue;
          for (const std::string& order : orders()) {
            const Grid grid = make_grid(world, {tp, cp, pp, 0}, order);
            ASSERT_EQ(grid.world(), world);
            ASSERT_EQ(grid.order(), order);
            for (int rank = 0; rank < world; ++rank)
              ASSERT_EQ(grid.rank_of(grid.coordinates_of(rank)), rank);
          }
        }
      }
    }
  }
}

TEST(Grid, GroupsOfEverySetOfAxesPartitionTheRanks) {
  for (const std::string& order : orders()) {
    const Grid grid({2, 1, 3, 2}, order);
    for (unsigned mask = 0; mask < 16; ++mask) {
      std::vector<Axis> axes;
      int members = 1;
      for (const Axis axis : kAxes) {
        if ((mask >> static_cast<unsigned>(axis) & 1U) == 0) continue;
        axes.push_back(axis);
        members *= grid.size(axis);
      }
      std::multiset<int> seen;
      for (const auto& group : grid.groups(axes)) {
        EXPECT_EQ(static_cast<int>(group.size()), members);
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
        for (const int rank : group) {
          EXPECT_EQ(grid.group(rank, axes), group);
          seen.insert(rank);
        }
      }
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(grid.world()));
      EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), seen.size());
    }
  }
}

TEST(Grid, RankStandsAtItsCoordinateInItsGroupAndNextToItsNeighbours) {
  const Grid grid({2, 3, 2, 2}, "pp,tp,dp,cp");
  for (int rank = 0; rank < grid.world(); ++rank) {
    for (const Axis axis : kAxes) {
      const std::vector<int> group = grid.group(rank, axis);
      const int size = grid.size(axis);
      const int at = grid.coordinates_of(rank)[axis];
      EXPECT_EQ(group[static_cast<std::size_t>(at)], rank);
      EXPECT_EQ(group[static_cast<std::size_t>((at + 1) % size)], grid.neighbour(rank, axis, 1));
      EXPECT_EQ(group[static_cast<std::size_t>((at + size - 1) % size)],
                grid.neighbour(rank, axis, -1));
    }
  }
}

TEST(Grid, FirstAxisOfTheOrderHasNeighbouringRanks) {
  const Grid inner({4, 1, 2, 2});
  EXPECT_EQ(inner.group(0, Axis::kTp), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(inner.group(5, Axis::kPp), (std::vector<int>{1, 5}));
  EXPECT_EQ(inner.group(5, Axis::kDp), (std::vector<int>{5, 13}));
  const Grid megatron({4, 1, 2, 2}, "tp,cp,dp,pp");
  EXPECT_EQ(megatron.group(5, Axis::kDp), (std::vector<int>{1, 5}));
  EXPECT_EQ(Grid({2, 1, 2, 1}, "pp,tp").group(0, Axis::kPp), (std::vector<int>{0, 1}));
}

void expect_usage_error(int world, PerAxis sizes, std::string_view order, std::string_view part) {
  try {
    (void)make_grid(world, sizes, order);
    ADD_FAILURE() << "accepted: " << part;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(Grid, IllegalSizesAndOrdersAreOneLineNamingTheLegalOnes) {
  expect_usage_error(6, {4, 1, 1, 0}, kDefaultOrder, "1, 2, 3, 6");
  expect_usage_error(8, {2, 1, 2, 1}, kDefaultOrder, "product of the axes must be 8");
  expect_usage_error(4, {-1, 1, 1, 4}, kDefaultOrder, "tp -1");
  expect_usage_error(4, {0, 1, 0, 4}, kDefaultOrder, "pp 0");
  expect_usage_error(0, {1, 1, 1, 1}, kDefaultOrder, "at least 1 rank");
  expect_usage_error(4, {4, 1, 1, 1}, "tp,tp,pp,dp", "tp twice");
  expect_usage_error(4, {4, 1, 1, 1}, "cp,pp,dp", "leaves out tp");
  expect_usage_error(4, {4, 1, 1, 1}, "tp,ep,pp,dp", "tp, cp, pp, dp");
  expect_usage_error(4, {4, 1, 1, 1}, "", "is unknown");
  expect_usage_error(4, {1 << 20, 1 << 20, 1, 1}, kDefaultOrder, "does not fit");
  EXPECT_THROW(Grid({1 << 20, 1 << 20, 1, 1}), UsageError);
}

}  // namespace
}  // namespace sinew::sched
