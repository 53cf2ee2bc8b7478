// Laws of every collective, between the processes of an mpirun.
#include <gtest/gtest.h>
#include <sched.h>

#include <string>

#include "comm/communicator.h"
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

// Ranks that share a core pass large calls through the stage: all operations, on counts around its
// tiles, in place and not.
TEST(CollectiveMpi, RanksThatShareACoreGetTheExactResult) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  {
    const auto communicator = Communicator::from_mpi({});
    const int world = communicator->world();
    for (const sched::Collective op : operations()) {
      for (const std::int64_t count : {4'099, 65'536}) {
        for (const DType dtype : {DType::kF32, DType::kBf16, DType::kU8}) {
          for (const Place place : {Place::kApart, Place::kInPlace}) {
            EXPECT_EQ(run_case(*communicator,
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
    }
    // One after the other, from root to root: a tile is written anew only when all have read it.
    for (std::uint64_t i = 0; i < 20; ++i) {
      CollectiveCase test = draw_case(test_seed() + 77, i, world);
      test.algorithm = "auto";
      test.form = Form::kBlocking;
      test.count += 20'000;
      EXPECT_EQ(run_case(*communicator, test), "");
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
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
