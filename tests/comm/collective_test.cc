// Laws of every collective, on threads.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/group.h"
#include "sched/base/error.h"
#include "sched/collective/registry.h"
#include "tests/comm/support/collective_case.h"
#include "tests/comm/support/failures.h"

namespace sinew::comm::testing {
namespace {

TEST(Collective, EveryAlgorithmGivesTheExactResultOnWorlds1To9) {
  Failures failures;
  for (int world = 1; world <= 9; ++world) {
    Communicator::run_threads(world, {}, [&](Communicator& communicator) {
      for (const sched::Algorithm& row : sched::algorithms()) {
        if (!row.refuse({.world = world}).empty()) continue;
        for (const std::int64_t count : {0, 1, world + 1, 1000}) {
          failures.add(run_case(communicator, {.op = row.op,
                                               .algorithm = std::string(row.name),
                                               .count = count,
                                               .root = world - 1}));
        }
      }
    });
  }
}

// A message may hold chunks that two earlier steps computed, of which the second waits for a part
// of the first only: that the second is done does not say that the first is. Such are those of
// circulant where the world is not a power of two; sizes at which the first was late.
TEST(Collective, AStepWaitsForEveryStepWhoseBytesItReads) {
  Failures failures;
  for (const int world : {14, 17, 18}) {
    Communicator::run_threads(world, {}, [&](Communicator& communicator) {
      for (const sched::Collective op :
           {sched::Collective::kAllReduce, sched::Collective::kReduceScatter}) {
        for (int i = 0; i < 10; ++i) {
          for (const std::int64_t count : {6000, 8193, 16384})
            failures.add(
                run_case(communicator,
                         {.op = op,
                          .algorithm = "circulant",
                          .count = op == sched::Collective::kAllReduce ? count : count / world}));
        }
      }
    });
  }
}

TEST(Collective, SampledCallsGiveTheExactResult) {
  Failures failures;
  for (const int world : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17}) {
    Communicator::run_threads(world, {}, [&](Communicator& communicator) {
      for (std::uint64_t i = 0; i < 150; ++i) {
        failures.add(run_case(
            communicator, draw_case(test_seed() + static_cast<std::uint64_t>(world), i, world)));
      }
    });
  }
}

// A started call that is done gives its place to a later one. Whoever then waits for it must not
// wait for the later one, which a peer may begin only once this rank has gone on.
TEST(Collective, ARequestThatIsDoneDoesNotWaitForTheCallThatTookItsPlace) {
  Communicator::run_threads(2, {.timeout_s = 5}, [](Communicator& communicator) {
    const auto other = communicator.split(0, communicator.rank());
    constexpr int kPlaces = 8;  // as many as there are, or more
    constexpr std::int64_t kCount = 100;
    std::vector<std::vector<float>> data(2 * kPlaces, std::vector<float>(kCount, 1.0F));
    std::vector<Request> requests;
    const auto start = [&] {
      float* values = data[requests.size()].data();
      requests.push_back(communicator.start_all_reduce(values, values, kCount, DType::kF32,
                                                       ReduceOp::kSum, {.algorithm = "one_shot"}));
    };
    for (int i = 0; i < kPlaces; ++i) start();
    requests.back().wait();
    char go = 0;
    if (communicator.rank() == 1) other->recv(&go, 1, DType::kU8, 0);
    while (requests.size() < data.size() - 1) {
      // Rank 0 takes the first place again and leaves the call open.
      start();
      if (communicator.rank() == 0) break;
    }
    for (int i = 0; i + 1 < kPlaces; ++i) {
      if (communicator.rank() == 0) requests[static_cast<std::size_t>(i)].wait();
    }
    if (communicator.rank() == 0) {
      other->send(&go, 1, DType::kU8, 1);
      while (requests.size() < data.size() - 1) start();
    }
    for (Request& request : requests) {
      if (request.pending()) request.wait();
    }
    for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(data[i].front(), 2.0F);
  });
}

// The rest of a message moves while its sender waits in a collective of another communicator, whose
// other rank comes only after it has the message.
TEST(Collective, AMessageArrivesWhileItsSenderWaitsInAnotherCommunicator) {
  Communicator::run_threads(2, {.timeout_s = 5}, [](Communicator& communicator) {
    const auto other = communicator.split(0, communicator.rank());
    std::vector<float> message(std::size_t{1} << 20, static_cast<float>(1 - communicator.rank()));
    float value = 1;
    if (communicator.rank() == 0) {
      Request request = communicator.start_send(
          message.data(), static_cast<std::int64_t>(message.size()), DType::kF32, 1);
      other->all_reduce(&value, &value, 1, DType::kF32, ReduceOp::kSum);
      request.wait();
    } else {
      communicator.recv(message.data(), static_cast<std::int64_t>(message.size()), DType::kF32, 0);
      other->all_reduce(&value, &value, 1, DType::kF32, ReduceOp::kSum);
    }
    EXPECT_EQ(message.back(), 1.0F);
    EXPECT_EQ(value, 2.0F);
  });
}

// What a request says once its communicator is gone; over: that it can be dropped then.
std::string words_of_orphan(Request& request, const std::function<void()>& ask) {
  try {
    ask();
  } catch (const UsageError& error) {
    return request.pending() ? "still pending" : error.what();
  }
  return "no error";
}

// The peer that waits for it hears of it as well.
TEST(Collective, ARequestThatOutlivesItsCommunicatorSaysSoOnceAndIsOver) {
  Communicator::run_threads(2, {}, [](Communicator& communicator) {
    auto copy = communicator.duplicate();
    copy->barrier();  // all have it before it fails
    float sum = 1;
    float message = 0;
    if (communicator.rank() == 1) {
      std::string heard;
      try {
        copy->recv(&message, 1, DType::kF32, 0);
      } catch (const Error& error) {
        heard = error.what();
      }
      EXPECT_NE(heard.find("destroyed its communicator in the middle of a call"), std::string::npos)
          << heard;
      return;
    }
    Request call = copy->start_all_reduce(&sum, &sum, 1, DType::kF32, ReduceOp::kSum);
    Request receive = copy->start_recv(&message, 1, DType::kF32, 1);
    copy.reset();
    const std::string waited = words_of_orphan(call, [&] { call.wait(); });
    const std::string tested = words_of_orphan(receive, [&] { static_cast<void>(receive.test()); });
    EXPECT_NE(waited.find("a request outlived its communicator"), std::string::npos) << waited;
    EXPECT_EQ(tested, waited);
  });
}

TEST(Collective, ARequestThatIsDroppedAfterItsCommunicatorEndsTheProgram) {
  const auto drop = [](Communicator& communicator) {
    auto copy = communicator.duplicate();
    float message = 0;
    const Request receive = copy->start_recv(&message, 1, DType::kF32, 0);
    copy.reset();
  };
  EXPECT_DEATH(Communicator::run_threads(1, {}, drop), "neither waited for nor failed");
}

TEST(Collective, AGroupWhoseCommunicatorIsDestroyedIsRefused) {
  Communicator::run_threads(2, {}, [](Communicator& communicator) {
    auto copy = communicator.duplicate();
    float lost = 1;
    float kept = 1;
    Group group;
    copy->all_reduce(&lost, &lost, 1, DType::kF32, ReduceOp::kSum);
    communicator.all_reduce(&kept, &kept, 1, DType::kF32, ReduceOp::kSum);
    copy.reset();
    EXPECT_THROW(group.run(), UsageError);
    EXPECT_EQ(kept, 1.0F);
    communicator.all_reduce(&kept, &kept, 1, DType::kF32, ReduceOp::kSum);
    EXPECT_EQ(kept, 2.0F);
  });
}

class EveryCombination : public ::testing::TestWithParam<int> {};

TEST_P(EveryCombination, IsExactOnThisWorld) {
  if (!wants_matrix()) GTEST_SKIP() << kMatrixSkipped;
  Failures failures;
  Communicator::run_threads(
      GetParam(), {}, [&](Communicator& communicator) { failures.add(run_matrix(communicator)); });
}

INSTANTIATE_TEST_SUITE_P(World, EveryCombination,
                         ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17),
                         [](const auto& world) { return std::to_string(world.param); });

}  // namespace
}  // namespace sinew::comm::testing
