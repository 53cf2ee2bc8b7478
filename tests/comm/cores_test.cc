// Which cores a rank counts with, and which it takes for its threads.
#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <set>
#include <vector>

#include "comm/communicator.h"
#include "comm/placement.h"
#include "comm/wait.h"

namespace sinew::comm {
namespace {

Cores cores_of(std::initializer_list<int> cores, std::uint64_t machine = 1, double quota = 0) {
  Cores result;
  result.machine = machine;
  result.quota = quota;
  for (const int core : cores) result.mask[core / 64] |= std::uint64_t{1} << (core % 64);
  return result;
}

std::vector<int> share(const std::vector<Cores>& ranks, std::size_t own) {
  return share_of_cores(neighbours(ranks, own));
}

TEST(Cores, RanksThatMayUseTheSameOnesShareThemOut) {
  const std::vector<Cores> two(2, cores_of({0, 1, 2, 70}));
  EXPECT_EQ(share(two, 0), (std::vector<int>{0, 1}));
  EXPECT_EQ(share(two, 1), (std::vector<int>{2, 70}));
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const std::vector<Cores> all(static_cast<std::size_t>(ranks), cores_of({3, 4, 5, 6}));
    std::set<int> taken;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      for (const int core : share(all, rank)) EXPECT_TRUE(taken.insert(core).second);
    }
    EXPECT_EQ(taken.size(), 4U) << ranks;
  }
}

TEST(Cores, MoreRanksThanCoresHaveOneEach) {
  const std::vector<Cores> five(5, cores_of({0, 1}));
  for (std::size_t rank = 0; rank < five.size(); ++rank)
    EXPECT_EQ(share(five, rank), (std::vector<int>{static_cast<int>(rank % 2)}));
}

TEST(Cores, BoundRanksKeepTheirOwnAndAQuotaLowersTheNumber) {
  const std::vector<Cores> bound = {cores_of({0, 1}), cores_of({2, 3})};
  EXPECT_EQ(share(bound, 1), (std::vector<int>{2, 3}));
  const std::vector<Cores> limited(2, cores_of({0, 1, 2, 3, 4, 5, 6, 7}, 1, 4));
  EXPECT_EQ(share(limited, 1), (std::vector<int>{4, 5}));
  const std::vector<Cores> little(2, cores_of({0, 1, 2, 3}, 1, 0.5));
  EXPECT_EQ(share(little, 0), (std::vector<int>{0}));
}

// Ranks of other machines take no core here, though their cores have the same numbers.
TEST(Cores, OtherMachinesDoNotCount) {
  const std::vector<Cores> ranks = {cores_of({0, 1}, 1), cores_of({0, 1}, 2), cores_of({0, 1}, 1),
                                    cores_of({0, 1}, 2)};
  EXPECT_EQ(neighbours(ranks, 3).cores.size(), 2U);
  EXPECT_EQ(neighbours(ranks, 3).own, 1U);
  EXPECT_EQ(share(ranks, 2), (std::vector<int>{1}));
  EXPECT_EQ(count_cores(neighbours(ranks, 0).cores), 2);
}

// All masks of up to six cores and numbers of ranks up to 20.
TEST(Cores, RanksStayOnOneWhereAllGetEquallyMany) {
  for (int count = 1; count <= 6; ++count) {
    Cores each;
    for (int core = 0; core < count; ++core) each.mask[0] |= std::uint64_t{1} << (3 * core);
    for (int ranks = 1; ranks <= 20; ++ranks) {
      const std::vector<Cores> all(static_cast<std::size_t>(ranks), each);
      const bool equal = count > 1 && ranks > count && ranks % count == 0;
      std::map<int, int> of_core;
      for (std::size_t own = 0; own < all.size(); ++own) {
        EXPECT_EQ(ranks_per_core(neighbours(all, own)), equal ? ranks / count : 0);
        ++of_core[share(all, own).front()];
      }
      for (const auto& [core, here] : of_core) EXPECT_TRUE(!equal || here == ranks / count) << core;
    }
  }
  const std::vector<Cores> bound = {cores_of({0}), cores_of({1}), cores_of({0}), cores_of({1})};
  EXPECT_EQ(ranks_per_core(neighbours(bound, 2)), 0);
}

TEST(Cores, WhereARankStaysIsKnownWhereItMayNotMove) {
  const std::vector<Cores> four(4, cores_of({0, 5}));
  EXPECT_EQ(fixed_cores(neighbours(four, 0), true), (std::vector<int>{0, 5, 0, 5}));
  EXPECT_EQ(fixed_cores(neighbours(four, 0), false), std::vector<int>(4, -1));
  const std::vector<Cores> three(3, cores_of({0, 5}));
  EXPECT_EQ(fixed_cores(neighbours(three, 1), true), std::vector<int>(3, -1));
  const std::vector<Cores> bound = {cores_of({3}), cores_of({1}), cores_of({3}), cores_of({1, 3})};
  EXPECT_EQ(fixed_cores(neighbours(bound, 1), true), (std::vector<int>{3, 1, 3, -1}));
}

TEST(Cores, EveryRankOfACommunicatorHasSome) {
  Communicator::run_threads(3, {}, [](Communicator& communicator) {
    EXPECT_GE(communicator.own_cores().size(), 1U);
    const Cores usable = usable_cores();
    for (const int core : communicator.own_cores())
      EXPECT_NE(usable.mask[core / 64] >> (core % 64) & 1, 0U);
  });
}

}  // namespace
}  // namespace sinew::comm
