// The transport cuda_ipc between the processes of an mpirun: device memory is mapped, every
// operation gives the CPU's bits, copies arrive, and failures to map are everybody's.
#include "comm/device/cuda_ipc.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "comm/device/choice.h"
#include "comm/device/copies.h"
#include "comm/error.h"
#include "tests/gpu/rows.h"

namespace sinew {
namespace {

using namespace testing;
using comm::PeerMemory;

TEST(CudaIpc, EveryRankReadsWhatTheOthersWroteAndNamesTheLink) {
  const auto bootstrap = comm::mpi_bootstrap(60);
  const int rank = bootstrap->rank();
  PeerMemory memory(*bootstrap, 4096);
  device::Stream stream;
  std::array<std::uint8_t, 16> seen{};
  for (int r = 0; r < memory.world(); ++r) {
    stream.copy(seen.data(), memory.of(r) + 512, seen.size());
    stream.synchronize();
    for (const std::uint8_t byte : seen) EXPECT_EQ(byte, 0) << "not cleared before it was mapped";
  }
  static_cast<void>(bootstrap->exchange(rank));
  for (int r = 0; r < memory.world(); ++r) {
    stream.fill(memory.of(r) + 64 * rank, static_cast<std::uint8_t>(rank + 1), 64);
  }
  stream.synchronize();
  static_cast<void>(bootstrap->exchange(rank));
  for (int r = 0; r < memory.world(); ++r) {
    stream.copy(seen.data(), memory.of(rank) + 64 * r, seen.size());
    stream.synchronize();
    EXPECT_EQ(seen[7], r + 1);
    EXPECT_EQ(memory.link(r), device::LinkKind::kTwin);
    EXPECT_EQ(memory.gone(r), "");
  }
  EXPECT_NE(memory.describe().find("over host memory (twin)"), std::string::npos)
      << memory.describe();
  memory.close(*bootstrap);
}

// One rank asks for more than there is.
TEST(CudaIpc, WhenOneRankFailsAllSayWhichAndWhy) {
  const auto bootstrap = comm::mpi_bootstrap(60);
  const std::size_t size = bootstrap->rank() == 1 ? std::size_t{1} << 62 : 4096;
  try {
    const PeerMemory memory(*bootstrap, size);
    ADD_FAILURE() << "a rank that has no memory was not noticed";
  } catch (const comm::Error& error) {
    EXPECT_EQ(error.peer(), 1);
    EXPECT_NE(std::string(error.what()).find("transport cuda_ipc: rank 1: "), std::string::npos)
        << error.what();
  }
}

TEST(CudaIpc, EveryRowGivesTheBitsOfTheCpuExecutor) {
  twin::Config config;
  config.spin_limit_s = 3600;
  const twin::Scope scope(config);
  const auto bootstrap = comm::mpi_bootstrap(250);
  expect_rows_equal_the_cpu(*bootstrap, {.slots = 2, .transport = "shm"});
}

template <typename Body>
void expect_copies(int part_words, const Body& body) {
  const auto bootstrap = comm::mpi_bootstrap(60);
  const int world = bootstrap->world();
  comm::Resident resident(*bootstrap, small_options(2));
  device::Stream stream;
  const auto words = static_cast<std::size_t>(part_words * world);
  PeerMemory result(*bootstrap, words * sizeof(std::int32_t));
  for (int round = 0; round < 2; ++round) {
    body(*bootstrap, resident, result, stream, round);
    resident.check(stream);
  }
  result.close(*bootstrap);
  resident.close(*bootstrap);
}

TEST(CudaIpc, CopyEnginesGatherTheParts) {
  constexpr int kWords = 33;
  expect_copies(kWords, [](comm::Bootstrap& bootstrap, comm::Resident& resident,
                           const PeerMemory& result, device::Stream& stream, int round) {
    const int world = bootstrap.world();
    const DeviceArray<std::int32_t> mine(
        std::vector<std::int32_t>(kWords, 100 * round + bootstrap.rank()), stream);
    comm::all_gather_by_copies(resident, result, mine.data(), kWords * 4, stream);
    std::vector<std::int32_t> all(static_cast<std::size_t>(kWords * world));
    stream.copy(all.data(), result.of(bootstrap.rank()), all.size() * 4);
    stream.synchronize();
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(all[i], 100 * round + static_cast<int>(i) / kWords) << i;
  });
}

TEST(CudaIpc, CopyEnginesSpreadTheRootsVector) {
  constexpr int kWords = 7;
  expect_copies(kWords, [](comm::Bootstrap& bootstrap, comm::Resident& resident,
                           const PeerMemory& result, device::Stream& stream, int round) {
    const int world = bootstrap.world();
    const int root = round % world;
    std::vector<std::int32_t> wanted(static_cast<std::size_t>(kWords * world));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      wanted[i] = static_cast<std::int32_t>(i) * (round + 3);
    const DeviceArray<std::int32_t> source(
        bootstrap.rank() == root ? wanted : std::vector<std::int32_t>(wanted.size(), -1), stream);
    // Not a multiple of the world.
    const auto bytes = static_cast<std::int64_t>(wanted.size()) * 4 - 4;
    comm::broadcast_by_copies(resident, result, source.data(), bytes, root, stream);
    std::vector<std::int32_t> all(wanted.size());
    stream.copy(all.data(), result.of(bootstrap.rank()), static_cast<std::size_t>(bytes));
    stream.synchronize();
    all.back() = wanted.back();
    EXPECT_EQ(all, wanted);
  });
}

TEST(CudaIpc, ChoicesRunAndAreTheSameOnAllRanks) {
  const auto bootstrap = comm::mpi_bootstrap(60);
  comm::Resident resident(*bootstrap, small_options(2));
  std::set<const sched::Algorithm*> rows;
  for (const std::int64_t bytes :
       {std::int64_t{8}, comm::kOneShotBytes + 1, comm::kLinesBytes * 2}) {
    const comm::ResidentChoice choice = comm::choose(resident, {.full_bytes = bytes});
    rows.insert(choice.row);
    EXPECT_EQ(choice.kernel != nullptr, bytes <= comm::kLinesBytes) << bytes;
    const auto index = choice.row - sched::algorithms().data();
    for (const auto other : bootstrap->exchange(index)) EXPECT_EQ(other, index) << bytes;
  }
  EXPECT_EQ(rows.size(), 3U);
  EXPECT_THROW(static_cast<void>(comm::choose(resident, {.algorithm = "nope"})), UsageError);
  EXPECT_THROW(static_cast<void>(comm::choose(resident, {.protocol = "nope"})), UsageError);
  resident.close(*bootstrap);
}

}  // namespace
}  // namespace sinew
