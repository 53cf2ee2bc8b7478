// Point to point, split, symmetric memory and several calls in flight, on threads.
#include "comm/communicator.h"
#include "sched/base/error.h"
#include "tests/comm/support/exchanges.h"
#include "tests/comm/support/failures.h"

namespace sinew::comm::testing {
namespace {

using Check = std::string (*)(Communicator&);

void on_worlds(Check check) {
  Failures failures;
  for (const int world : {1, 2, 3, 5, 8}) {
    Communicator::run_threads(
        world, {}, [&](Communicator& communicator) { failures.add(check(communicator)); });
  }
}

TEST(Exchange, MessagesArriveWholeInAnyOrderOfTags) { on_worlds(check_messages); }
TEST(Exchange, MessagesToTheOwnRankArriveInOrder) { on_worlds(check_self_messages); }
TEST(Exchange, SplitGroupsByColorAndOrdersByKey) { on_worlds(check_split); }
TEST(Exchange, SymmetricBuffersGiveTheSameResults) { on_worlds(check_symmetric); }
TEST(Exchange, CallsOnSymmetricMemoryGiveTheBitsOfTheirSchedule) {
  on_worlds(check_symmetric_bits);
}
TEST(Exchange, PartsOfDifferentSizesGiveThePlainResult) { on_worlds(check_parts); }
TEST(Exchange, GroupsDoNotDeadlockInAnyOrder) { on_worlds(check_groups); }
TEST(Exchange, DuplicatesAreApartAndOutliveWhatTheyAreOf) { on_worlds(check_duplicates); }
TEST(Exchange, CountsOfMoreBytesThanThereAreAreRefused) { on_worlds(check_counts); }
TEST(Exchange, MoreThanTwoToThe31BytesArriveWhole) {
  if (const std::string reason = why_not_large(2); !reason.empty()) GTEST_SKIP() << reason;
  Failures failures;
  Communicator::run_threads(
      2, {}, [&](Communicator& communicator) { failures.add(check_large(communicator)); });
}
TEST(Exchange, CallsInFlightDoNotMix) { on_worlds(check_several_in_flight); }

}  // namespace
}  // namespace sinew::comm::testing
