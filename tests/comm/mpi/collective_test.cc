// Laws of every collective, between the processes of an mpirun.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <string>

#include "comm/communicator.h"
#include "comm/placement.h"
#include "sched/collective/registry.h"
#include "tests/comm/support/collective_case.h"

namespace sinew::comm::testing {
namespace {

TEST(CollectiveMpi, EveryAlgorithmGivesTheExactResult) {
  const auto communicator = Communicator::from_mpi({});
  const int world = communicator->world();
  for (const sched::Algorithm& row : sched::algorithms()) {
    if (!row.refuse({.world = world}).empty()) continue;
    for (const std::int64_t count : {0, 1, world + 1, 1000, 300'000}) {
      if (!row.family.empty() && count > 1000) continue;  // the family's own row was large
      EXPECT_EQ(run_case(*communicator, {.op = row.op,
                                         .algorithm = std::string(row.name),
                                         .count = count,
                                         .root = world - 1}),
                "");
    }
  }
}

TEST(CollectiveMpi, SampledCallsGiveTheExactResult) {
  const auto communicator = Communicator::from_mpi({});
  const int world = communicator->world();
  for (std::uint64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(run_case(*communicator,
                       draw_case(test_seed() + static_cast<std::uint64_t>(world), i, world)),
              "");
  }
}

TEST(CollectiveMpi, EveryCombinationIsExact) {
  if (!wants_matrix()) GTEST_SKIP() << kMatrixSkipped;
  for (const Copies copies : {Copies::kAuto, Copies::kPull})
    EXPECT_EQ(run_matrix(*Communicator::from_mpi({.copies = copies})), "");
}

cpu_set_t first_cores(const cpu_set_t& of, int count) {
  cpu_set_t some;
  CPU_ZERO(&some);
  for (std::size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&some) < count; ++core) {
    if (CPU_ISSET(core, &of)) CPU_SET(core, &some);
  }
  return some;
}

// Ranks that share cores pass large calls through the stage: all operations, on counts around its
// tiles, in place and not, with the types in turn.
void check_staged(Communicator& communicator, std::initializer_list<std::int64_t> counts) {
  const int world = communicator.world();
  constexpr DType kTypes[] = {DType::kF32, DType::kBf16, DType::kU8};
  std::size_t turn = 0;
  for (const sched::Collective op : operations()) {
    for (const std::int64_t count : counts) {
      for (const Place place : {Place::kApart, Place::kInPlace}) {
        const DType dtype = kTypes[turn++ % std::size(kTypes)];
        EXPECT_EQ(run_case(communicator,
                           {.op = op,
                            .algorithm = "auto",
                            .dtype = dtype,
                            .reduce = dtype == DType::kBf16 ? ReduceOp::kAvg : ReduceOp::kSum,
                            .count = op == sched::Collective::kAllReduce ? 2 * count : count,
                            .root = world - 1,
                            .place = place,
                            .shift = static_cast<int>(count % 2)}),
                  "");
      }
    }
  }
  // One after the other, from root to root: a tile is written anew only when all have read it.
  for (std::uint64_t i = 0; i < 8; ++i) {
    CollectiveCase test = draw_case(test_seed() + 77, i, world);
    test.algorithm = "auto";
    test.form = Form::kBlocking;
    test.count += 20'000;
    EXPECT_EQ(run_case(communicator, test), "");
  }
}

std::int64_t calls_through_stage(const Communicator& communicator) {
  std::int64_t calls = 0;
  for (const Counter& counter : communicator.counters().collective) calls += counter.through_stage;
  return calls;
}

// On one core all that is put is read there; on two, ranks that stay on theirs read some of it
// there; where they move nobody knows.
TEST(CollectiveMpi, RanksThatShareCoresGetTheExactResult) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  for (int cores = 1; cores <= std::min(2, CPU_COUNT(&before)); ++cores) {
    const cpu_set_t some = first_cores(before, cores);
    ASSERT_EQ(sched_setaffinity(0, sizeof some, &some), 0);
    for (const char* const spread : {"1", "0"}) {
      if (cores == 1 && *spread == '0') continue;  // there is nothing to spread over
      setenv(kSpreadVariable, spread, 1);
      const auto communicator = Communicator::from_mpi({});
      if (communicator->world() <= cores) continue;  // nothing is staged
      if (cores == 1) check_staged(*communicator, {4'099, 65'536});
      if (cores == 2) check_staged(*communicator, {65'539});
      communicator->reset_counters();
      check_staged(*communicator, {65'536});
      const std::int64_t staged = calls_through_stage(*communicator);
      // Over a network no rank reads another's tiles.
      EXPECT_EQ(staged > 0, communicator->transport_name() == "shm");
      // Where a rank has symmetric memory, all first ask each other whether these buffers are.
      const Symmetric symmetric = communicator->allocate(64);
      communicator->reset_counters();
      check_staged(*communicator, {65'536});
      EXPECT_EQ(calls_through_stage(*communicator), staged);
    }
    unsetenv(kSpreadVariable);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

// With a core each, too; summed in one pass into two places where those lie alike, else in two.
TEST(CollectiveMpi, LargeSumsOfTwoRanksPassThroughTheStage) {
  const auto communicator = Communicator::from_mpi({});
  if (communicator->world() != 2 || communicator->transport_name() != "shm")
    GTEST_SKIP() << "of two ranks over shm";
  constexpr std::int64_t kBytes = (16 << 20) + 136;
  std::int64_t calls = 0;
  for (const ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kAvg}) {
    for (const DType dtype : {DType::kF32, DType::kU8}) {
      for (const Place place : {Place::kApart, Place::kInPlace}) {
        for (const int shift : {0, 1}) {
          EXPECT_EQ(
              run_case(*communicator, {.op = sched::Collective::kAllReduce,
                                       .algorithm = "auto",
                                       .dtype = dtype,
                                       .reduce = reduce,
                                       .count = kBytes / static_cast<std::int64_t>(size_of(dtype)),
                                       .place = place,
                                       .shift = shift}),
              "");
          ++calls;
        }
      }
    }
  }
  EXPECT_EQ(calls_through_stage(*communicator), calls);
}

// Large messages between ordinary buffers through shared memory, and read out of the sender's.
TEST(CollectiveMpi, EveryWayOfCopyingGivesTheExactResult) {
  for (const Copies copies : {Copies::kSlots, Copies::kPull}) {
    const auto communicator = Communicator::from_mpi({.copies = copies});
    const int world = communicator->world();
    for (std::uint64_t i = 0; i < 25; ++i) {
      EXPECT_EQ(
          run_case(*communicator,
                   draw_case(test_seed() + 1000 + static_cast<std::uint64_t>(world), i, world)),
          "");
    }
    for (const sched::Collective op : operations()) {
      EXPECT_EQ(run_case(*communicator, {.op = op, .algorithm = "auto", .count = 400'003 / world}),
                "");
    }
  }
}

}  // namespace
}  // namespace sinew::comm::testing
