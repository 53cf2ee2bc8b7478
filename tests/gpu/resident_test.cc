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
#include "tests/gpu/scenarios.h"

namespace sinew {
namespace {

using namespace testing;
using comm::Protocol;
using comm::Resident;
using comm::ResidentOptions;
using comm::ResidentWork;
using sched::Collective;

// Small blocks and slots, so that everything is cut.
ResidentOptions small_options(int slots) {
  return {.channels = 2, .slots = slots, .slot_bytes = 1024, .threads = 32, .timeout_s = 100};
}

// Runs body(bootstrap) on one thread per rank, each under the caller's twin configuration; rethrows
// what made the others fail. Deadlines that only a hang may meet are long: ranks outnumber cores.
void run_ranks(int world, const std::function<void(comm::Bootstrap&)>& body) {
  twin::Config config = twin::Scope::current();
  const bool may_hang = config.removed != nullptr;
  if (!may_hang) config.spin_limit_s = 100;
  const auto bootstraps = comm::thread_bootstraps(world, may_hang ? 1.0 : 100.0);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < bootstraps.size(); ++r) {
    threads.emplace_back([&, r] {
      const twin::Scope scope(config);
      try {
        body(*bootstraps[r]);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::exception_ptr waited;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const comm::Error&) {
      waited = error;
    }
  }
  if (waited) std::rethrow_exception(waited);
}

struct Case {
  DType dtype;
  ReduceOp reduce;
  std::int64_t count;
  int shift;  // elements by which buffers are off their alignment
};
// Types, reductions, counts and alignments that the loops over rows take turns in.
constexpr Case kCases[] = {
    {DType::kF32, ReduceOp::kSum, 150, 0}, {DType::kBf16, ReduceOp::kSum, 200, 1},
    {DType::kF64, ReduceOp::kProd, 41, 0}, {DType::kF32, ReduceOp::kAvg, 1, 0},
    {DType::kU8, ReduceOp::kMax, 700, 3},  {DType::kF16, ReduceOp::kMin, 77, 0},
    {DType::kI64, ReduceOp::kSum, 0, 0},   {DType::kI32, ReduceOp::kProd, 130, 1},
    {DType::kF32, ReduceOp::kSum, 300, 1}, {DType::kF16, ReduceOp::kSum, 90, 1},
};

std::size_t elements(std::int64_t blocks, const Case& c) {
  return static_cast<std::size_t>(blocks * c.count);
}

// `count` elements of the type as bytes: normal floats, any integers.
std::vector<std::byte> make_input(const Case& c, std::size_t count, int rank) {
  const std::vector<float> values =
      normal_values(count, static_cast<std::uint32_t>(rank) * 7 + 1, 1.0F);
  std::vector<std::byte> bytes(count * size_of(c.dtype));
  visit(c.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < count; ++i) {
      T value{};
      if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(static_cast<std::int64_t>(values[i] * 100));
      } else if constexpr (std::is_same_v<T, bf16>) {
        value = to_bf16(values[i]);
      } else if constexpr (std::is_same_v<T, f16>) {
        value = to_f16(values[i]);
      } else {
        value = static_cast<T>(values[i]);
      }
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

struct Blocks {
  std::int64_t input;
  std::int64_t output;
};
Blocks blocks_of(Collective op, int world) {
  switch (op) {
    case Collective::kReduceScatter:
      return {world, 1};
    case Collective::kAllGather:
    case Collective::kGather:
      return {1, world};
    case Collective::kScatter:
      return {world, 1};
    case Collective::kAllToAll:
      return {world, world};
    case Collective::kBarrier:
      return {0, 0};
    default:
      return {1, 1};
  }
}

// One call on the device; gives the output's bytes. Outputs start as NaN.
template <typename Call>
std::vector<std::byte> on_device(const Case& c, const std::vector<std::byte>& input,
                                 std::size_t output_bytes, device::Stream& stream, Call&& call) {
  const auto shift = static_cast<std::size_t>(c.shift) * size_of(c.dtype);
  const DeviceArray<std::byte> d_input(input.size() + shift), d_output(output_bytes + shift);
  stream.copy(d_input.data() + shift, input.data(), input.size());
  call(ResidentWork{d_input.data() + shift, d_output.data() + shift, c.count, c.dtype, c.reduce});
  const std::vector<std::byte> all = d_output.download(stream);
  return {all.begin() + static_cast<std::ptrdiff_t>(shift), all.end()};
}

std::vector<std::byte> on_cpu(comm::Communicator& communicator, const sched::Algorithm& row,
                              int root, const Case& c, const std::vector<std::byte>& input,
                              std::size_t output_bytes) {
  std::vector<std::byte> output(output_bytes);
  const comm::Call call{.algorithm = row.name};
  switch (row.op) {
    case Collective::kAllReduce:
      communicator.all_reduce(input.data(), output.data(), c.count, c.dtype, c.reduce, call);
      break;
    case Collective::kReduceScatter:
      communicator.reduce_scatter(input.data(), output.data(), c.count, c.dtype, c.reduce, call);
      break;
    case Collective::kAllGather:
      communicator.all_gather(input.data(), output.data(), c.count, c.dtype, call);
      break;
    case Collective::kBroadcast:
      communicator.broadcast(input.data(), output.data(), c.count, c.dtype, root, call);
      break;
    case Collective::kReduce:
      communicator.reduce(input.data(), output.data(), c.count, c.dtype, c.reduce, root, call);
      break;
    case Collective::kGather:
      communicator.gather(input.data(), output.data(), c.count, c.dtype, root, call);
      break;
    case Collective::kScatter:
      communicator.scatter(input.data(), output.data(), c.count, c.dtype, root, call);
      break;
    case Collective::kAllToAll:
      communicator.all_to_all(input.data(), output.data(), c.count, c.dtype, call);
      break;
    case Collective::kBarrier:
      communicator.barrier(call);
      break;
  }
  return output;
}

// What the ranks of one world do for every row that accepts it.
void expect_rows_equal_the_cpu(comm::Bootstrap& bootstrap, int slots) {
  const int world = bootstrap.world();
  const int rank = bootstrap.rank();
  const auto communicator = comm::Communicator::from_bootstrap(
      bootstrap, {.transport = "local", .small_calls = false, .fuse = false});
  Resident resident(bootstrap, small_options(slots));
  device::Stream stream;
  auto turn = static_cast<std::size_t>(world * 5 + slots);
  for (const sched::Algorithm& row : sched::algorithms()) {
    const int root = sched::Contract{.op = row.op}.rooted() ? world - 1 : 0;
    if (!row.refuse({.world = world, .root = root}).empty()) continue;
    const sched::Verdict verdict =
        sched::verify(sched::generate(row, {.world = world, .root = root}));
    if (verdict.facts.credits_in_order > slots) continue;  // refused; the wider run has it
    const Case& c = kCases[turn % std::size(kCases)];
    const Protocol protocol = comm::kProtocols[turn % std::size(comm::kProtocols)];
    ++turn;
    const Blocks blocks = blocks_of(row.op, world);
    const std::vector<std::byte> input = make_input(c, elements(blocks.input, c), rank);
    const std::size_t output_bytes = elements(blocks.output, c) * size_of(c.dtype);
    const std::vector<std::byte> actual =
        on_device(c, input, output_bytes, stream, [&](const ResidentWork& work) {
          resident.run(row, root, protocol, work, stream);
          resident.check(stream);
        });
    const std::vector<std::byte> expected =
        on_cpu(*communicator, row, root, c, input, output_bytes);
    // Reduce and gather have an output on the root only.
    const bool at_root = row.op == Collective::kReduce || row.op == Collective::kGather;
    if (at_root && rank != root) continue;
    EXPECT_TRUE(actual == expected)
        << name_of(row.op) << " by " << row.name << ", world " << world << ", rank " << rank << ", "
        << name_of(protocol) << ", " << slots << " slots, " << c.count << " " << name_of(c.dtype)
        << " " << name_of(c.reduce);
  }
  resident.close(bootstrap);
}

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
        expect_rows_equal_the_cpu(bootstrap, slots);
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
        for (const Case& c : kCases) {
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
      options.timeout_s = 0.2;
      Resident resident(bootstrap, options);
      if (bootstrap.rank() == 2) std::raise(SIGKILL);
      device::Stream stream;
      static_cast<void>(sums_are_exact(bootstrap, "ring", protocol, resident, stream));
      return std::string("nothing was noticed");
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 10.0);
    EXPECT_TRUE(outcomes[2].killed());
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(outcomes[static_cast<std::size_t>(rank)].threw);
      EXPECT_NE(outcomes[static_cast<std::size_t>(rank)].text.find("waited longer than"),
                std::string::npos)
          << outcomes[static_cast<std::size_t>(rank)].text;
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

bool testing::small_collectives_scenario(device::Stream&) {
  constexpr std::string_view kAlgorithms[] = {""};
  return run_scenario(kAlgorithms, twin::Scope::current().removed != nullptr ? 0.3 : 100);
}

}  // namespace sinew
