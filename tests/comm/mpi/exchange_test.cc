// Point to point, split, symmetric memory and several calls in flight, between processes.
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "tests/comm/support/exchanges.h"

namespace sinew::comm::testing {
namespace {

TEST(ExchangeMpi, MessagesArriveWholeInAnyOrderOfTags) {
  EXPECT_EQ(check_messages(*Communicator::from_mpi({})), "");
}
TEST(ExchangeMpi, MessagesToTheOwnRankArriveInOrder) {
  EXPECT_EQ(check_self_messages(*Communicator::from_mpi({})), "");
}
TEST(ExchangeMpi, SplitGroupsByColorAndOrdersByKey) {
  EXPECT_EQ(check_split(*Communicator::from_mpi({})), "");
}
TEST(ExchangeMpi, SymmetricBuffersGiveTheSameResults) {
  EXPECT_EQ(check_symmetric(*Communicator::from_mpi({})), "");
}
TEST(ExchangeMpi, GroupsDoNotDeadlockInAnyOrder) {
  EXPECT_EQ(check_groups(*Communicator::from_mpi({})), "");
}
TEST(ExchangeMpi, DuplicatesAreApartAndOutliveWhatTheyAreOf) {
  EXPECT_EQ(check_duplicates(*Communicator::from_mpi({})), "");
}
TEST(ExchangeMpi, CallsOnSymmetricMemoryGiveTheBitsOfTheirSchedule) {
  EXPECT_EQ(check_symmetric_bits(*Communicator::from_mpi({})), "");
}
TEST(ExchangeMpi, PartsOfDifferentSizesGiveThePlainResult) {
  EXPECT_EQ(check_parts(*Communicator::from_mpi({})), "");
}
TEST(ExchangeMpi, MoreThanTwoToThe31BytesArriveWhole) {
  const auto communicator = Communicator::from_mpi({});
  std::string reason = why_not_large(communicator->world());
  // What one rank sees must not make it leave the others.
  int denied = reason.empty() ? 0 : 1;
  communicator->all_reduce(&denied, &denied, 1, DType::kI32, ReduceOp::kMax);
  if (reason.empty()) reason = "another rank has not the memory for it";
  if (denied != 0) GTEST_SKIP() << reason;
  EXPECT_EQ(check_large(*communicator), "");
}
TEST(ExchangeMpi, CallsInFlightDoNotMix) {
  EXPECT_EQ(check_several_in_flight(*Communicator::from_mpi({})), "");
}

}  // namespace
}  // namespace sinew::comm::testing
