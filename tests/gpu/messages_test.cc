// Messages on device memory: what is sent arrives, whatever its size, type and the slots; the two
// ends and the ways run beside each other; and a door's calls come after what made their input and
// before what uses their output.
#include "comm/device/messages.h"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <numeric>

#include "comm/ask.h"
#include "comm/device/door.h"
#include "comm/error.h"
#include "kernels/elementwise_gpu.h"
#include "tests/comm/support/processes.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/races.h"
#include "tests/gpu/ranks.h"
#include "tests/gpu/rows.h"
#include "tests/gpu/scenarios.h"

namespace sinew {
namespace {

using namespace testing;
using comm::DeviceMessage;
using comm::DeviceMessages;
using comm::ResidentOptions;

std::vector<std::uint8_t> bytes_of(std::size_t size, int sender, int number) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(sender * 31 + number));
  return bytes;
}

// Every rank sends to the next and receives from the one before, on a stream for each end.
void pass_round(comm::Bootstrap& bootstrap, const ResidentOptions& options) {
  DeviceMessages messages(bootstrap, options);
  const int rank = bootstrap.rank();
  const int world = bootstrap.world();
  const int before = (rank + world - 1) % world;
  {
    device::Stream sends;
    device::Stream receives;
    int number = 0;
    for (const DType dtype : {DType::kU8, DType::kBf16, DType::kF32}) {
      for (const std::int64_t count : {1, 7, 64, 333}) {
        for (const int tag : {0, 1}) {
          const std::size_t size = static_cast<std::size_t>(count) * size_of(dtype);
          // Off by one element, so that not all accesses are of 16 bytes.
          const std::size_t shift = number % 2 == 0 ? 0 : size_of(dtype);
          DeviceArray<std::uint8_t> out(size + shift);
          const DeviceArray<std::uint8_t> in(size + shift);
          const std::vector<std::uint8_t> mine = bytes_of(size, rank, number);
          sends.copy(out.data() + shift, mine.data(), size);
          auto* target = reinterpret_cast<char*>(in.data() + shift);
          auto* source = reinterpret_cast<char*>(out.data() + shift);
          messages.receive({target, count, dtype, before, tag}, receives);
          messages.send({source, count, dtype, (rank + 1) % world, tag}, sends);
          sends.synchronize();
          std::vector<std::uint8_t> arrived = in.download(receives);
          arrived.erase(arrived.begin(), arrived.begin() + static_cast<std::ptrdiff_t>(shift));
          EXPECT_EQ(arrived, bytes_of(size, before, number))
              << count << " " << name_of(dtype) << ", world " << world;
          ++number;
        }
      }
    }
    messages.check(sends);
  }
  messages.close(bootstrap);
}

TEST(DeviceMessages, ArriveWholeWhateverTheirSizeTypeAndSlots) {
  const std::vector<twin::Config> configs = schedules();
  for (const int world : {2, 3}) {
    for (const int slots : {1, 2}) {
      const twin::Scope scope(configs[static_cast<std::size_t>(world + slots) % configs.size()]);
      run_ranks(world, [slots](comm::Bootstrap& bootstrap) {
        ResidentOptions options = small_options(slots);
        options.slot_bytes = 128;
        pass_round(bootstrap, options);
      });
    }
  }
}

TEST(DeviceMessages, EndsThatDifferInSizeAreTold) {
  run_ranks(2, [](comm::Bootstrap& bootstrap) {
    DeviceMessages messages(bootstrap, small_options(2));
    const DeviceArray<float> data(8);
    auto* place = reinterpret_cast<char*>(data.data());
    device::Stream stream;
    const int rank = bootstrap.rank();
    if (rank == 0) {
      messages.send({place, 8, DType::kF32, 1, 0}, stream);
    } else {
      messages.receive({place, 7, DType::kF32, 0, 0}, stream);
    }
    stream.synchronize();
    static_cast<void>(bootstrap.exchange(rank));  // all kernels have ended
    try {
      messages.check(stream);
      ADD_FAILURE() << "rank " << rank << " was not told";
    } catch (const comm::Error& error) {
      EXPECT_EQ(error.cause(), comm::Cause::kMismatch);
      EXPECT_NE(std::string(error.what()).find("another size"), std::string::npos) << error.what();
    }
    EXPECT_THROW(messages.send({place, 1, DType::kF32, 1 - rank, 2}, stream), UsageError);
    static_cast<void>(bootstrap.exchange(rank));
  });
}

TEST(DeviceMessages, APeerThatSendsNothingIsNamedWithinTheDeadline) {
  run_ranks(2, [](comm::Bootstrap& bootstrap) {
    ResidentOptions options = small_options(1);
    options.timeout_s = 0.1;
    DeviceMessages messages(bootstrap, options);
    const DeviceArray<float> data(8);
    device::Stream stream;
    if (bootstrap.rank() == 0) {
      messages.receive({reinterpret_cast<char*>(data.data()), 8, DType::kF32, 1, 0}, stream);
      try {
        messages.check(stream);
        ADD_FAILURE() << "nothing was noticed";
      } catch (const comm::Error& error) {
        EXPECT_EQ(error.cause(), comm::Cause::kTimeout);
        EXPECT_NE(std::string(error.what()).find("rank 0 waited longer than 0.1 s for rank 1"),
                  std::string::npos)
            << error.what();
      }
    }
    static_cast<void>(bootstrap.exchange(1));
  });
}

// Between processes: first a round in which all are alive, then one in which a rank dies, before it
// sends or while its message, of more pieces than there are slots, is under way.
TEST(DeviceMessages, ADeadPeerEndsTheKernelsOfOtherProcessesWithinTheDeadline) {
  if (kRaceDetector) GTEST_SKIP() << "the race detector does not follow processes: run by test_gpu";
  for (const bool under_way : {false, true}) {
    const auto start = std::chrono::steady_clock::now();
    const auto outcomes = comm::testing::run_processes(3, [&](comm::Bootstrap& bootstrap) {
      ResidentOptions options = small_options(1);
      pass_round(bootstrap, options);
      if (::testing::Test::HasFailure()) return std::string("the round of the living failed");
      options.timeout_s = 0.2;
      options.slot_bytes = 128;
      DeviceMessages messages(bootstrap, options);
      constexpr std::int64_t kCount = 4096;
      const DeviceArray<std::uint8_t> data(kCount);
      auto* place = reinterpret_cast<char*>(data.data());
      device::Stream stream;
      if (bootstrap.rank() == 2) {
        if (under_way) messages.send({place, kCount, DType::kU8, 0, 0}, stream);
        std::raise(SIGKILL);
      }
      // Two messages, of which one was sent at most.
      for (int i = 0; i < 2; ++i) messages.receive({place, kCount, DType::kU8, 2, 0}, stream);
      messages.check(stream);
      return std::string("nothing was noticed");
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 60.0);
    EXPECT_TRUE(outcomes[2].killed());
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const std::string& text = outcomes[rank].text;
      EXPECT_TRUE(outcomes[rank].threw) << text;
      EXPECT_NE(text.find("message on device memory: rank "), std::string::npos) << text;
      EXPECT_NE(text.find(" waited longer than 0.2 s for rank 2, which "), std::string::npos)
          << text;
      EXPECT_NE(text.find("is dead"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
}

constexpr std::int64_t kElements = 70;

// Two rounds of calls through a door, whose buffers are written before, used after and written
// again, all by a stream that computes.
bool calls_are_in_their_place(comm::Bootstrap& bootstrap, comm::DeviceDoor& door,
                              device::Stream& compute) {
  const int rank = bootstrap.rank();
  const int peer = 1 - rank;
  const DeviceArray<float> summed(kElements), sent(kElements), arrived(kElements), all(kElements);
  kernels::fill(all.data(), 0.0F, kElements, compute);
  kernels::fill(arrived.data(), 0.0F, kElements, compute);
  float expected = 0;
  for (int round = 0; round < 2; ++round) {
    const auto value = [&](int of) { return static_cast<float>(10 * round + of + 1); };
    kernels::fill(summed.data(), value(rank), kElements, compute);
    kernels::fill(sent.data(), value(rank), kElements, compute);
    const auto sum = door.start(comm::ask::all_reduce({summed.data(), summed.data()}, kElements,
                                                      DType::kF32, ReduceOp::kSum),
                                "two_shot");
    // Of the round before; the receive below overwrites it.
    kernels::add(all.data(), arrived.data(), kElements, compute);
    const std::uint64_t receives =
        door.start_recv(arrived.data(), kElements, DType::kF32, {peer, 0});
    const std::uint64_t sends = door.start_send(sent.data(), kElements, DType::kF32, {peer, 0});
    door.finish(sum.ticket);
    kernels::add(all.data(), summed.data(), kElements, compute);
    door.finish(receives);
    kernels::add(all.data(), arrived.data(), kElements, compute);
    door.finish(sends);
    kernels::fill(sent.data(), -1.0F, kElements, compute);
    if (round > 0) expected += static_cast<float>(peer + 1);
    expected += value(0) + value(1) + value(peer);
  }
  const std::vector<float> values = all.download(compute);
  door.check();
  return std::all_of(values.begin(), values.end(), [&](float v) { return v == expected; });
}

bool door_is_right() {
  std::atomic<bool> right{true};
  // Outlive all kernels, also when a rank fails.
  std::array<std::unique_ptr<device::Stream>, 2> streams;
  std::array<std::unique_ptr<comm::DeviceDoor>, 2> doors;
  try {
    run_ranks(2, [&](comm::Bootstrap& bootstrap) {
      const auto rank = static_cast<std::size_t>(bootstrap.rank());
      ResidentOptions options = small_options(1);
      options.channels = 1;
      options.threads = 32;
      options.slot_bytes = 256;
      options.timeout_s = twin::Scope::current().removed != nullptr ? 0.3 : kHangS;
      streams[rank] = std::make_unique<device::Stream>();
      doors[rank] = comm::open_device_door(
          bootstrap, *streams[rank], [](const void*) { return true; }, options,
          comm::DoorUse::kCollectivesAndMessages);
      if (!calls_are_in_their_place(bootstrap, *doors[rank], *streams[rank])) right = false;
      static_cast<void>(bootstrap.exchange(1));
    });
  } catch (const sinew::Error&) {
    right = false;
  }
  return right;
}

std::vector<twin::Config> stream_orders() {
  std::vector<twin::Config> configs;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    twin::Config config;
    config.streams = twin::Streams::kPriority;
    config.seed = seed;
    configs.push_back(config);
  }
  return configs;
}

TEST(Door, CallsComeAfterTheirInputAndBeforeTheirUseInEveryOrderOfStreams) {
  for (const twin::Config& config : stream_orders()) {
    const twin::Scope scope(config);
    EXPECT_TRUE(door_is_right()) << twin::describe(config);
  }
}

// Without the race detector, too: by an order of streams under which the result is wrong.
TEST(Door, EveryWaitOfAStreamIsMissedWhenLeftOut) {
  if (!device::properties().twin) GTEST_SKIP() << "only the twin leaves one out";
  for (const char* name : {"collective_after_its_input", "send_after_what_made_it",
                           "receive_after_what_lay_there", "compute_after_call"}) {
    bool noticed = false;
    for (twin::Config config : stream_orders()) {
      config.removed = name;
      config.spin_limit_s = 1;
      const twin::Scope scope(config);
      noticed = noticed || !door_is_right();
    }
    EXPECT_TRUE(noticed) << name << " can be left out and nobody notices";
  }
}

}  // namespace

bool testing::messages_scenario(device::Stream&) {
  std::atomic<bool> right{true};
  std::array<std::unique_ptr<DeviceMessages>, 2> own;  // outlive all kernels
  try {
    run_ranks(2, [&](comm::Bootstrap& bootstrap) {
      const auto rank = static_cast<std::size_t>(bootstrap.rank());
      ResidentOptions options = small_options(1);
      options.slot_bytes = 256;
      options.threads = 64;
      options.timeout_s = twin::Scope::current().removed != nullptr ? 0.3 : kHangS;
      own[rank] = std::make_unique<DeviceMessages>(bootstrap, options);
      std::vector<float> values(150);
      std::iota(values.begin(), values.end(), static_cast<float>(rank * 1000));
      const DeviceArray<float> out(values.size()), in(values.size());  // outlive both streams' work
      device::Stream sends;
      device::Stream receives;
      sends.copy(out.data(), values.data(), values.size() * sizeof(float));
      sends.synchronize();
      const int peer = static_cast<int>(1 - rank);
      for (int i = 0; i < 2; ++i) {
        own[rank]->receive({reinterpret_cast<char*>(in.data()), 150, DType::kF32, peer, 0},
                           receives);
        own[rank]->send({reinterpret_cast<char*>(out.data()), 150, DType::kF32, peer, 0}, sends);
      }
      own[rank]->check(sends);
      own[rank]->check(receives);
      const std::vector<float> arrived = in.download(receives);
      std::iota(values.begin(), values.end(), static_cast<float>((1 - rank) * 1000));
      if (arrived != values) right = false;
    });
  } catch (const sinew::Error&) {
    return false;
  }
  return right;
}

bool testing::door_scenario(device::Stream&) {
  std::vector<twin::Config> orders = stream_orders();
  if (kFewSchedules) orders.resize(2);  // the race detector sees a missing wait in any
  for (twin::Config config : orders) {
    config.removed = twin::Scope::current().removed;
    config.spin_limit_s = twin::Scope::current().spin_limit_s;
    const twin::Scope scope(config);
    if (!door_is_right()) return false;
  }
  return true;
}

}  // namespace sinew
