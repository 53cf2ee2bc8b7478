// Where ranks run that outnumber their cores: equally many on each, on no core that was not theirs,
// and only as long as a communicator needs it.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "comm/placement.h"

namespace sinew::comm {
namespace {

class Affinity {
 public:
  Affinity() { CPU_ZERO(&set_); }
  static Affinity now() {
    Affinity found;
    EXPECT_EQ(sched_getaffinity(0, sizeof found.set_, &found.set_), 0);
    return found;
  }
  // The first `count` cores of these that follow the first `skip`.
  [[nodiscard]] Affinity part(int skip, int count) const {
    Affinity few;
    for (int core = 0; core < CPU_SETSIZE && few.count() < count; ++core) {
      if (has(core) && --skip < 0) CPU_SET(static_cast<std::size_t>(core), &few.set_);
    }
    return few;
  }
  void use() const { ASSERT_EQ(sched_setaffinity(0, sizeof set_, &set_), 0); }
  [[nodiscard]] bool has(int core) const {
    return CPU_ISSET(static_cast<std::size_t>(core), &set_);
  }
  [[nodiscard]] int count() const { return CPU_COUNT(&set_); }
  [[nodiscard]] int first() const {
    int core = 0;
    while (!has(core)) ++core;
    return core;
  }
  bool operator==(const Affinity& other) const { return CPU_EQUAL(&set_, &other.set_); }

 private:
  cpu_set_t set_;
};

// Gives the thread back what it had, and the variable too.
class PlacementMpi : public ::testing::Test {
 protected:
  PlacementMpi() { setenv(kSpreadVariable, "1", 1); }
  ~PlacementMpi() override {
    before_.use();
    unsetenv(kSpreadVariable);
  }
  Affinity before_ = Affinity::now();
};

// How many ranks may use one core only, by core.
std::map<int, int> ranks_of_cores(Communicator& communicator) {
  const Affinity now = Affinity::now();
  std::int32_t own = now.count() == 1 ? now.first() : -1;
  std::vector<std::int32_t> all(static_cast<std::size_t>(communicator.world()));
  communicator.all_gather(&own, all.data(), 1, DType::kI32);
  std::map<int, int> ranks;
  for (const std::int32_t core : all) ++ranks[core];
  return ranks;
}

TEST_F(PlacementMpi, EqualSharesStayOnTheirCoresAndTheOthersAreLeftAlone) {
  for (int cores = 1; cores <= std::min(before_.count(), 4); ++cores) {
    const Affinity allowed = before_.part(0, cores);
    allowed.use();
    {
      const auto communicator = Communicator::from_mpi({});
      const int world = communicator->world();
      const bool kept = cores > 1 && world > cores && world % cores == 0;
      if (kept) {
        for (const auto& [core, ranks] : ranks_of_cores(*communicator)) {
          EXPECT_TRUE(core >= 0 && allowed.has(core)) << core;
          EXPECT_EQ(ranks, world / cores) << core;
        }
        EXPECT_EQ(Affinity::now().first(), communicator->own_cores().front());
      } else {
        EXPECT_EQ(Affinity::now(), allowed);
      }
      EXPECT_EQ(communicator->placement().empty(), world <= cores) << communicator->placement();
      EXPECT_EQ(communicator->placement().find("kept on each") != std::string::npos, kept)
          << communicator->placement();
    }
    EXPECT_EQ(Affinity::now(), allowed) << "what the communicator took it must give back";
  }
}

TEST_F(PlacementMpi, TheLastCommunicatorOfAThreadGivesBack) {
  if (before_.count() < 2) GTEST_SKIP() << "needs two usable cores";
  before_.part(0, 2).use();
  auto first = Communicator::from_mpi({});
  const Affinity kept = Affinity::now();
  auto second = Communicator::from_mpi({});
  auto half = first->split(first->rank() % 2, 0);
  EXPECT_EQ(Affinity::now(), kept);
  EXPECT_EQ(second->own_cores().front(), first->own_cores().front());
  first.reset();
  EXPECT_EQ(Affinity::now(), kept);
  second.reset();
  EXPECT_EQ(Affinity::now(), kept);
  half.reset();
  EXPECT_EQ(Affinity::now(), before_.part(0, 2));
}

TEST_F(PlacementMpi, WithoutTheVariableTheyAreLeftToTheKernel) {
  if (before_.count() < 2) GTEST_SKIP() << "needs two usable cores";
  const Affinity two = before_.part(0, 2);
  two.use();
  for (const char* value : {"0", ""}) {
    if (*value == '\0') {
      unsetenv(kSpreadVariable);
    } else {
      setenv(kSpreadVariable, value, 1);
    }
    const auto communicator = Communicator::from_mpi({});
    EXPECT_EQ(Affinity::now(), two);
    EXPECT_EQ(communicator->placement().find("kept"), std::string::npos);
  }
}

// As a launcher's binding does it: each rank has a core of its own choice already.
TEST_F(PlacementMpi, BoundRanksStayWhereTheyAreBound) {
  if (before_.count() < 2) GTEST_SKIP() << "needs two usable cores";
  std::optional<Affinity> bound;
  {
    const auto communicator = Communicator::from_mpi({});
    bound = before_.part(communicator->rank() == 0 ? 0 : 1, 1);
  }
  bound->use();
  {
    const auto communicator = Communicator::from_mpi({});
    EXPECT_EQ(Affinity::now(), *bound);
    communicator->barrier();
  }
  EXPECT_EQ(Affinity::now(), *bound);
}

// A thread that was given other cores meanwhile keeps those.
TEST_F(PlacementMpi, CoresGivenMeanwhileAreNotTakenBack) {
  if (before_.count() < 2) GTEST_SKIP() << "needs two usable cores";
  before_.part(0, 2).use();
  auto communicator = Communicator::from_mpi({});
  const Affinity second = before_.part(communicator->own_cores().front() == before_.first(), 1);
  second.use();
  communicator.reset();
  EXPECT_EQ(Affinity::now(), second);
}

}  // namespace
}  // namespace sinew::comm
