// What stands on transports, over one that misbehaves; and long random sequences of calls.
// SINEW_SEED sets the seed, SINEW_SOAK_CALLS how many calls each soak makes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/error.h"
#include "sched/collective/registry.h"
#include "tests/comm/support/collective_case.h"
#include "tests/comm/support/exchanges.h"
#include "tests/comm/support/failures.h"
#include "tests/comm/support/faulty.h"

namespace sinew::comm::testing {
namespace {

using std::chrono::steady_clock;

void run_faulty(int world, Options options, const Faults& faults,
                const std::function<void(Communicator&)>& body) {
  options.wrap_transport = with_faults(faults);
  Communicator::run_threads(world, options, body);
}

TEST(Faulty, DelaysOvertakingAndCutMessagesChangeNoResult) {
  Failures failures;
  for (const int world : {2, 3, 5}) {
    const std::uint64_t seed = test_seed() + static_cast<std::uint64_t>(world);
    run_faulty(world, {}, {.seed = seed}, [&](Communicator& communicator) {
      for (std::uint64_t i = 0; i < 60; ++i)
        failures.add(run_case(communicator, draw_case(seed, i, world)));
      failures.add(check_messages(communicator));
      failures.add(check_split(communicator));
      failures.add(check_several_in_flight(communicator));
    });
  }
}

// Ranks that pass on what arrives hold all of it back, the strictest that a transport may ask for.
TEST(Faulty, SendsThatWaitForAllOfTheirBytesComeToAnEndInEveryAlgorithmAndWorld) {
  Failures failures;
  for (int world = 2; world <= 6; ++world) {
    const Faults faults{.seed = test_seed() + static_cast<std::uint64_t>(world),
                        .worthwhile_bytes = std::numeric_limits<std::int64_t>::max()};
    run_faulty(world, {.timeout_s = 20}, faults, [&](Communicator& communicator) {
      for (const sched::Algorithm& row : sched::algorithms()) {
        if (!row.refuse({.world = world}).empty()) continue;
        for (const Place place : {Place::kApart, Place::kInPlace}) {
          failures.add(run_case(communicator, {.op = row.op,
                                               .algorithm = std::string(row.name),
                                               .dtype = DType::kI32,
                                               .count = 5000,
                                               .root = world - 1,
                                               .place = place}));
        }
      }
    });
  }
}

// One rank loses or garbles one message at some moment. Until the fault shows results are exact;
// then every rank throws, within the deadline.
TEST(Faulty, ALostOrGarbledMessageIsAnErrorOnEveryRank) {
  for (const Faults::Kind kind : {Faults::Kind::kLose, Faults::Kind::kGarble}) {
    for (const std::int64_t moment : {0, 1, 7, 40, 41, 42, 43}) {
      const int world = 2 + static_cast<int>(moment % 2);
      const std::uint64_t seed = test_seed() + static_cast<std::uint64_t>(moment);
      const auto start = steady_clock::now();
      Failures failures;
      std::atomic<int> threw{0};
      Options options{.timeout_s = 0.3, .small_calls = false};
      options.wrap_transport = [&](std::unique_ptr<Transport> inner, int rank) {
        // One rank is at fault.
        return with_faults({.seed = seed,
                            .kind = rank == moment % 3 % world ? kind : Faults::Kind::kNone,
                            .at_message = moment})(std::move(inner), rank);
      };
      Communicator::run_threads(world, options, [&](Communicator& communicator) {
        try {
          for (int call = 0; call < 200; ++call) {
            failures.add(run_case(communicator, {.op = sched::Collective::kAllReduce,
                                                 .algorithm = "two_shot",
                                                 .dtype = DType::kI32,
                                                 .count = 3000 + call}));
          }
          failures.add("a rank noticed nothing");
        } catch (const Error&) {
          ++threw;
        }
      });
      EXPECT_EQ(threw, world) << "moment " << moment;
      EXPECT_LT(std::chrono::duration<double>(steady_clock::now() - start).count(), 20);
    }
  }
}

std::uint64_t soak_calls() {
  const char* text = std::getenv("SINEW_SOAK_CALLS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1500;
}

// Small calls back to back: what a slot or box recycled too early would break.
TEST(Soak, SmallCallsOfRandomKindSizeAndRootAreExact) {
  Failures failures;
  for (const int world : {2, 3, 4, 7, 8}) {
    Communicator::run_threads(world, {}, [&](Communicator& communicator) {
      const std::uint64_t seed = test_seed() + 77 * static_cast<std::uint64_t>(world);
      for (std::uint64_t i = 0; i < soak_calls(); ++i) {
        CollectiveCase test = draw_case(seed, i, world);
        test.count %= 300;
        const std::string wrong = run_case(communicator, test);
        failures.add(wrong.empty() ? wrong : "call " + std::to_string(i) + ": " + wrong);
      }
    });
  }
}

}  // namespace
}  // namespace sinew::comm::testing
