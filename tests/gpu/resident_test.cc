// Collectives on device memory: every row of sched's table through the resident interpreter gives
// the bits of the CPU executor; small kernels give the bits of the schedule they name; dead peers
// end the kernels.
#include "comm/device/resident.h"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "comm/communicator.h"
#include "comm/error.h"
#include "sched/verify.h"
#include "tests/comm/support/processes.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/races.h"
#include "tests/gpu/ranks.h"
#include "tests/gpu/rows.h"
#include "tests/gpu/scenarios.h"

namespace sinew {
namespace {

using namespace testing;
using comm::Protocol;
using comm::Resident;
using comm::ResidentOptions;
using comm::ResidentWork;
using sched::Collective;

TEST(Resident, EveryRowGivesTheBitsOfTheCpuExecutorOnWorlds1To8) {
  if (kRaceDetector) GTEST_SKIP() << "the CPU executor is not instrumented: run by test_gpu";
  const std::vector<twin::Config> configs = schedules();
  for (int world = 1; world <= 8; ++world) {
    if (kFewSchedules && (world == 4 || world >= 6)) continue;  // a sanitizer needs no more
    for (const int slots : world == 3 ? std::vector<int>{1, 2} : std::vector<int>{1}) {
      const twin::Scope scope(
          configs[static_cast<std::size_t>(world * 2 + slots) % configs.size()]);
      SCOPED_TRACE(twin::describe(twin::Scope::current()));
      run_ranks(world, [slots](comm::Bootstrap& bootstrap) {
        expect_rows_equal_the_cpu(bootstrap, {.slots = slots});
      });
    }
  }
}

TEST(Resident, SmallKernelsGiveTheBitsOfTheSchedulesTheyName) {
  for (int world = 1; world <= 8; world += kFewSchedules ? 3 : 1) {
    run_ranks(world, [](comm::Bootstrap& bootstrap) {
      Resident resident(bootstrap, small_options(1));
      device::Stream stream;
      for (const comm::SmallKernel& kernel : comm::small_kernels()) {
        for (const RowCase& c : kRowCases) {
          const std::size_t count = elements(1, c);
          const std::vector<std::byte> input = make_input(c, count, bootstrap.rank());
          const auto run = [&](auto&& call) {
            return on_device(c, input, input.size(), stream, call);
          };
          const auto actual =
              run([&](const ResidentWork& work) { resident.run(kernel, work, stream); });
          const auto expected = run([&](const ResidentWork& work) {
            resident.run(sched::find_algorithm(kernel.op, kernel.algorithm), 0, Protocol::kSimple,
                         work, stream);
          });
          EXPECT_TRUE(actual == expected)
              << kernel.algorithm << ", world " << bootstrap.world() << ", " << name_of(c.dtype);
        }
      }
      resident.check(stream);
      resident.close(bootstrap);
    });
  }
}

// Sums of small whole numbers: exact in every order.
bool sums_are_exact(comm::Bootstrap& bootstrap, std::string_view algorithm, Protocol protocol,
                    Resident& resident, device::Stream& stream) {
  constexpr std::size_t kElements = 70;
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < kElements; ++i)
    values[i] = static_cast<float>(i * static_cast<std::size_t>(bootstrap.rank() + 1) % 97);
  const DeviceArray<float> data(values, stream);
  const ResidentWork work = {data.data(), data.data(), kElements, DType::kF32, ReduceOp::kSum};
  if (algorithm.empty()) {
    for (const comm::SmallKernel& kernel : comm::small_kernels())
      resident.run(kernel, work, stream);
  } else {
    const auto& row = sched::find_algorithm(Collective::kAllReduce, algorithm);
    // In place, and again on what the first call gave: counts run on over launches.
    resident.run(row, 0, protocol, work, stream);
    resident.run(row, 0, protocol, work, stream);
  }
  resident.check(stream);
  const std::vector<float> sums = data.download(stream);
  for (std::size_t i = 0; i < kElements; ++i) {
    float expected = 0;
    for (int r = 0; r < bootstrap.world(); ++r)
      expected += static_cast<float>(i * static_cast<std::size_t>(r + 1) % 97);
    if (sums[i] != expected * static_cast<float>(bootstrap.world())) return false;
  }
  return true;
}

// What one protocol leaves in a slot must not look like the arrival of another's message: all words
// of the first call's data are the number of some message to come.
TEST(Resident, DataThatLooksLikeMessageNumbersIsNotTakenForThem) {
  run_ranks(2, [](comm::Bootstrap& bootstrap) {
    constexpr std::size_t kElements = 64;
    ResidentOptions options = small_options(1);
    options.channels = 1;
    Resident resident(bootstrap, options);
    device::Stream stream;
    const auto& row = sched::find_algorithm(Collective::kAllReduce, "ring");
    for (std::int32_t number = 1; number < 24; ++number) {
      for (const Protocol protocol : comm::kProtocols) {
        const DeviceArray<std::int32_t> data(std::vector<std::int32_t>(kElements, number), stream);
        const ResidentWork work = {data.data(), data.data(), kElements, DType::kI32,
                                   ReduceOp::kMax};
        resident.run(row, 0, protocol, work, stream);
        ASSERT_EQ(data.download(stream), std::vector<std::int32_t>(kElements, number));
      }
    }
    resident.close(bootstrap);
  });
}

// Three ranks, one channel's slot for everything, all protocols and kernels.
bool run_scenario(std::span<const std::string_view> algorithms, double timeout_s) {
  std::atomic<bool> right{true};
  std::array<std::unique_ptr<Resident>, 3>
      residents;  // outlive all kernels, also when a rank fails
  try {
    run_ranks(3, [&](comm::Bootstrap& bootstrap) {
      ResidentOptions options = small_options(1);
      options.slot_bytes = 256;
      options.threads = 64;
      options.timeout_s = timeout_s;
      auto& own = residents[static_cast<std::size_t>(bootstrap.rank())];
      own = std::make_unique<Resident>(bootstrap, options);
      Resident& resident = *own;
      device::Stream stream;
      for (const std::string_view algorithm : algorithms) {
        for (const Protocol protocol : comm::kProtocols) {
          if (!sums_are_exact(bootstrap, algorithm, protocol, resident, stream)) right = false;
          if (algorithm.empty()) break;
        }
      }
      resident.close(bootstrap);
    });
  } catch (const sinew::Error&) {
    return false;
  }
  return right;
}

TEST(Resident, RanksInProcessesMapEachOther) {
  if (kRaceDetector) GTEST_SKIP() << "the race detector does not follow processes: run by test_gpu";
  const auto outcomes = comm::testing::run_processes(3, [](comm::Bootstrap& bootstrap) {
    // Few messages: processes that share a core hand it over by the time slice.
    ResidentOptions options = small_options(2);
    options.channels = 1;
    Resident resident(bootstrap, options);
    std::string text;
    {
      device::Stream stream;
      for (const Protocol protocol : comm::kProtocols) {
        if (!sums_are_exact(bootstrap, "ring", protocol, resident, stream)) text += "ring ";
      }
      if (!sums_are_exact(bootstrap, "", Protocol::kLowLatency, resident, stream)) text += "small";
    }
    resident.close(bootstrap);
    return text;
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.text, "");
    EXPECT_EQ(outcome.status, 0);
  }
}

TEST(Resident, ADeadPeerEndsTheKernelsWithinTheDeadline) {
  if (kRaceDetector) GTEST_SKIP() << "the race detector does not follow processes: run by test_gpu";
  for (const Protocol protocol : comm::kProtocols) {
    const auto start = std::chrono::steady_clock::now();
    const auto outcomes = comm::testing::run_processes(3, [&](comm::Bootstrap& bootstrap) {
      ResidentOptions options = small_options(1);
      device::Stream stream;
      // The living keep no deadline that a loaded machine could miss.
      Resident alive(bootstrap, options);
      if (!sums_are_exact(bootstrap, "recursive_doubling", protocol, alive, stream))
        return std::string("wrong sums");
      alive.close(bootstrap);
      options.timeout_s = 0.2;
      Resident resident(bootstrap, options);
      if (bootstrap.rank() == 2) std::raise(SIGKILL);
      static_cast<void>(sums_are_exact(bootstrap, "ring", protocol, resident, stream));
      return std::string("nothing was noticed");
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 60.0);
    EXPECT_TRUE(outcomes[2].killed());
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(outcomes[static_cast<std::size_t>(rank)].threw);
      // Who waits for the dead one and who waits for that one may give up at the same moment; both
      // say in which call: the first of this Resident.
      const std::string& text = outcomes[static_cast<std::size_t>(rank)].text;
      EXPECT_NE(text.find("call 1 (all_reduce/ring of 70 f32, sum): rank "), std::string::npos)
          << text;
      EXPECT_NE(text.find(" waited longer than 0.2 s for rank "), std::string::npos) << text;
      if (text.find("for rank 2") != std::string::npos) {
        EXPECT_NE(text.find("is dead"), std::string::npos) << text;
      }
    }
  }
}

// One rank's call differs from the others' in one thing; the deadline is far.
TEST(Resident, RanksThatCallDifferentThingsAreToldWhoCalledWhat) {
  struct Other {
    Collective op = Collective::kAllReduce;
    std::int64_t count = 40;
    DType dtype = DType::kF32;
    ReduceOp reduce = ReduceOp::kSum;
    std::string words;
  };
  const Other all;
  for (const Other& other :
       {Other{.op = Collective::kAllGather, .words = "all_gather/ring of 40 f32"},
        Other{.count = 20, .words = "all_reduce/ring of 20 f32, sum"},
        Other{.dtype = DType::kI32, .words = "all_reduce/ring of 40 i32, sum"},
        Other{.reduce = ReduceOp::kMax, .words = "of 40 f32, max"}}) {
    for (const Protocol protocol : comm::kProtocols) {
      run_ranks(3, [&](comm::Bootstrap& bootstrap) {
        ResidentOptions options = small_options(1);
        options.timeout_s = 50;
        Resident resident(bootstrap, options);
        device::Stream stream;
        const DeviceArray<float> input(40), output(3 * 40);
        const auto call = [&](const Other& what) {
          resident.run(sched::find_algorithm(what.op, "ring"), 0, protocol,
                       {input.data(), output.data(), what.count, what.dtype, what.reduce}, stream);
        };
        call(all);
        call(bootstrap.rank() == 1 ? other : all);
        call(all);  // where nobody waited in vain, both have begun this one
        std::string text;
        try {
          resident.check(stream);
        } catch (const comm::Error& error) {
          EXPECT_EQ(error.cause(), comm::Cause::kMismatch);
          text = error.what();
        }
        static_cast<void>(bootstrap.exchange(1));  // all kernels have ended
        EXPECT_NE(text.find("differ between ranks"), std::string::npos) << text;
        EXPECT_NE(text.find("rank 1: "), std::string::npos) << text;
        if (text.find("call 2") != std::string::npos && bootstrap.rank() == 1) {
          EXPECT_NE(text.find(other.words), std::string::npos) << text;
        }
      });
    }
  }
}

TEST(Resident, ARecordedCallCanBeRepeated) {
  run_ranks(2, [](comm::Bootstrap& bootstrap) {
    Resident resident(bootstrap, small_options(1));
    device::Stream stream;
    const DeviceArray<float> data(std::vector<float>(50, 1.0F), stream);
    const ResidentWork work = {data.data(), data.data(), 50, DType::kF32, ReduceOp::kSum};
    const auto& row = sched::find_algorithm(Collective::kAllReduce, "ring");
    resident.run(row, 0, Protocol::kSimple, work, stream);
    stream.begin_capture();
    resident.run(row, 0, Protocol::kSimple, work, stream);
    const device::Graph graph = stream.end_capture();
    graph.launch(stream);
    graph.launch(stream);
    resident.check(stream);
    EXPECT_EQ(data.download(stream)[49], 8.0F);
    resident.close(bootstrap);
  });
}

TEST(Resident, OptionsAndSlotsThatDoNotSufficeAreRefusedInOneLine) {
  run_ranks(1, [](comm::Bootstrap& bootstrap) {
    const auto refused = [&](ResidentOptions options) {
      EXPECT_THROW(Resident(bootstrap, options), UsageError);
    };
    ResidentOptions options = small_options(1);
    options.channels = 0;
    refused(options);
    options.channels = 1000;
    refused(options);
    options = small_options(0);
    refused(options);
    options = small_options(1);
    options.slot_bytes = 100;
    refused(options);
    options = small_options(1);
    options.threads = 48;
    refused(options);
  });
  // A message of eight chunks does not fit where one line does.
  run_ranks(8, [](comm::Bootstrap& bootstrap) {
    ResidentOptions options = small_options(1);
    options.slot_bytes = 128;
    Resident resident(bootstrap, options);
    device::Stream stream;
    const DeviceArray<float> input(8), output(64);
    const ResidentWork work = {input.data(), output.data(), 8, DType::kF32, ReduceOp::kSum};
    const auto& row = sched::find_algorithm(Collective::kAllGather, "recursive_doubling");
    EXPECT_THROW(resident.run(row, 0, Protocol::kLines, work, stream), UsageError);
    resident.close(bootstrap);
  });
}

}  // namespace

bool testing::resident_scenario(device::Stream&) {
  constexpr std::string_view kAlgorithms[] = {"ring", "recursive_doubling"};
  return run_scenario(kAlgorithms, twin::Scope::current().removed != nullptr ? 0.3 : 100);
}

// Calls that differ in the reduction alone: only what was posted tells.
bool testing::different_calls_scenario(device::Stream&) {
  std::atomic<int> told = 0;
  run_ranks(2, [&](comm::Bootstrap& bootstrap) {
    ResidentOptions options = small_options(1);
    options.timeout_s = twin::Scope::current().removed != nullptr ? 0.3 : 50;
    Resident resident(bootstrap, options);
    device::Stream stream;
    const DeviceArray<float> data(std::vector<float>(40, 1.0F), stream);
    const auto call = [&](ReduceOp reduce) {
      resident.run(sched::find_algorithm(Collective::kAllReduce, "ring"), 0, Protocol::kSimple,
                   {data.data(), data.data(), 40, DType::kF32, reduce}, stream);
    };
    call(bootstrap.rank() == 1 ? ReduceOp::kMax : ReduceOp::kSum);
    call(ReduceOp::kSum);
    stream.synchronize();
    static_cast<void>(bootstrap.exchange(1));  // all kernels have ended: none writes what is read
    try {
      resident.check(stream);
    } catch (const comm::Error& error) {
      if (error.cause() == comm::Cause::kMismatch) ++told;
    }
    static_cast<void>(bootstrap.exchange(1));
  });
  return told == 2;
}

bool testing::small_collectives_scenario(device::Stream&) {
  constexpr std::string_view kAlgorithms[] = {""};
  return run_scenario(kAlgorithms, twin::Scope::current().removed != nullptr ? 0.3 : 100);
}

}  // namespace sinew
