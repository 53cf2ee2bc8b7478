// The twin itself: what CUDA promises holds, and what a kernel does wrong is reported with its
// place.
#include <thread>

#include "kernels/device/gpu.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/races.h"

namespace sinew {

// Small kernels, each right or wrong in one way. They need external linkage like any other.
namespace twin_test {

using gpu::Site;

__global__ void ids_kernel(std::uint32_t* out) {
  const auto block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const auto thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

__global__ void warp_kernel(int* out) {
  const int lane = gpu::lane();
  out[lane] = __shfl_sync(gpu::kFullMask, lane, 5);
  out[32 + lane] = __shfl_up_sync(gpu::kFullMask, lane, 3);
  out[64 + lane] = __shfl_down_sync(gpu::kFullMask, lane, 3, 16);
  out[96 + lane] = __shfl_xor_sync(gpu::kFullMask, lane, 8);
  out[128 + lane] = static_cast<int>(__ballot_sync(gpu::kFullMask, lane % 3 == 0));
  if (lane < 8) out[160 + lane] = __shfl_xor_sync(0xffU, lane, 1);
}

__global__ void block_sum_kernel(float* out) {
  const float sum = gpu::block_all(static_cast<float>(threadIdx.x), gpu::Sum{});
  const float largest = gpu::block_all(static_cast<float>(threadIdx.x), gpu::Maximum{});
  out[threadIdx.x] = sum + 1e6F * largest;
}

__global__ void async_kernel(const float* source, float* out) {
  SHARED(float, tile, 256);
  gpu::async_copy16(tile + threadIdx.x * 4, source + threadIdx.x * 4, threadIdx.x == 0 ? 8 : 16);
  gpu::async_copy_commit();
  REQUIRED(async_wait, gpu::async_copy_wait<0>());
  REQUIRED(async_barrier, __syncthreads());
  out[threadIdx.x] = tile[255 - threadIdx.x];
}

__global__ void handover_kernel(const float* source, float* buffer, float* out,
                                std::uint64_t* flag) {
  if (blockIdx.x == 0) {
    buffer[threadIdx.x] = source[threadIdx.x];
    REQUIRED(handover_written, __syncthreads());
    if (threadIdx.x == 0) {
      if (twin::is_removed("handover_release")) {
        gpu::store_relaxed_sys(flag, 1);
      } else {
        gpu::store_release_sys(flag, 1);
      }
    }
  } else {
    if (threadIdx.x == 0) {
      while (gpu::load_acquire_sys(flag) != 1) gpu::spin_turn();
    }
    REQUIRED(handover_acquired, __syncthreads());
    out[threadIdx.x] = buffer[threadIdx.x];
  }
}

__global__ void divergent_kernel() {
  if (threadIdx.x < 64) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void half_barrier_kernel() {
  if (threadIdx.x < 64) gpu::named_barrier_sync<1>(128);
}
__global__ void early_exit_kernel(float* out) {
  if (threadIdx.x >= 20) return;
  out[threadIdx.x] = __shfl_xor_sync(gpu::kFullMask, 1.0F, 1);
}
__global__ void outside_mask_kernel() { static_cast<void>(__shfl_sync(1U, 1.0F, 0)); }
__global__ void misaligned_kernel(const float* source) {
  SHARED(float, tile, 8);
  gpu::async_copy16(tile + 1, source);
}
__global__ void unfinished_copy_kernel(const float* source) {
  SHARED(float, tile, 4);
  gpu::async_copy16(tile, source);
  gpu::async_copy_commit();
}
__global__ void uninitialised_kernel(float* out) {
  SHARED(float, tile, 32);
  if (threadIdx.x > 3) tile[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}
__global__ void no_syncwarp_kernel(float* out) {
  SHARED(float, tile, 32);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  REQUIRED(warp_written, __syncwarp());
  out[threadIdx.x] = tile[31 - threadIdx.x];
}
__global__ void endless_kernel(std::uint64_t* flag) {
  while (gpu::load_acquire_sys(flag) == 0) gpu::spin_turn();
}
__global__ void raise_kernel(std::uint64_t* flag) { gpu::store_release_sys(flag, 1); }
__global__ void write_kernel(float* out, int index) { out[index] = 1; }
__global__ void racing_write_kernel(float* out, int index) {
  if (out[0] != 0) out[index] = 1;
  out[0] = 1;
}
__global__ void shared_write_kernel(float* out, int index) {
  SHARED(float, tile, 32);
  tile[threadIdx.x + static_cast<unsigned>(index)] = 1;
  out[threadIdx.x] = 1;
}
__global__ void dynamic_write_kernel(float* out, int index) {
  SHARED_DYNAMIC(float, tile);
  tile[index] = 1;
  out[threadIdx.x] = 1;
}

}  // namespace twin_test

namespace {

using namespace testing;
using namespace twin_test;

// Under it an illegal access ends the program with a report.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressChecker = true;
#else
constexpr bool kAddressChecker = false;
#endif

device::LaunchShape one_block(unsigned threads) { return {.block = {threads}}; }

TEST(Twin, ThreadsKnowWhoTheyAre) {
  for_each_schedule([](device::Stream& stream) {
    const DeviceArray<std::uint32_t> out(2 * 3 * 2 * 4 * 2 * 3);
    device::launch(ids_kernel, {.grid = {2, 3, 2}, .block = {4, 2, 3}}, stream, out.data());
    const auto values = out.download(stream);
    for (std::uint32_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], i / 24 * 1000 + i % 24);
  });
}

TEST(Twin, WarpFunctionsMoveValuesAsCudaSays) {
  for_each_schedule([](device::Stream& stream) {
    const DeviceArray<int> out(168);
    device::launch(warp_kernel, one_block(32), stream, out.data());
    const auto v = out.download(stream);
    for (int i = 0; i < 32; ++i) {
      const auto at = [&](int row) { return v[static_cast<std::size_t>(row * 32 + i)]; };
      EXPECT_EQ(at(0), 5);
      EXPECT_EQ(at(1), i < 3 ? i : i - 3);
      EXPECT_EQ(at(2), i % 16 + 3 >= 16 ? i : i + 3);
      EXPECT_EQ(at(3), i ^ 8);
      EXPECT_EQ(static_cast<unsigned>(at(4)), 0x49249249U);
      if (i < 8) {
        EXPECT_EQ(at(5), i ^ 1);
      }
    }
  });
}

TEST(Twin, BlockReductionsGiveEveryThreadTheSameResult) {
  for_each_schedule([](device::Stream& stream) {
    for (const unsigned threads : {32U, 64U, 96U, 256U}) {
      const DeviceArray<float> out(threads);
      device::launch(block_sum_kernel, one_block(threads), stream, out.data());
      const float n = static_cast<float>(threads);
      for (const float value : out.download(stream))
        EXPECT_EQ(value, n * (n - 1) / 2 + 1e6F * (n - 1));
    }
  });
}

TEST(Twin, AsynchronousCopiesArriveByTheWaitAndZeroTheRest) {
  const auto source = normal_values(256, 1);
  for_each_schedule([&](device::Stream& stream) {
    const DeviceArray<float> from(source, stream), out(64);
    device::launch(async_kernel, one_block(64), stream, from.data(), out.data());
    const auto values = out.download(stream);
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(values[i], source[255 - i]);
  });
}

// What happened in one launch that should not pass: its error, else "race", "wrong" or nothing.
template <typename... Parameters, typename... Arguments>
std::string trouble_of(const twin::Config& config, const device::LaunchShape& shape,
                       void (*kernel)(Parameters...), Arguments... arguments) {
  const twin::Scope scope(config);
  const long before = races_seen();
  device::Stream stream;
  try {
    device::launch(kernel, shape, stream, arguments...);
    stream.synchronize();
  } catch (const device::Error& error) {
    return error.what();
  }
  return races_seen() > before ? "race" : "";
}

void expect_trouble(const std::string& trouble, std::string_view words) {
  EXPECT_NE(trouble.find(words), std::string::npos)
      << "'" << trouble << "' instead of '" << words << "'";
}

TEST(Twin, ReportsWhatAKernelDoesWrong) {
  device::Stream stream;
  constexpr int kCount = 128;  // ends at the end of a page, and the page behind cannot be accessed
  const DeviceArray<float> memory(kCount);
  float* data = memory.data();
  for (const twin::Config& config : schedules()) {
    SCOPED_TRACE(twin::describe(config));
    expect_trouble(trouble_of(config, one_block(128), divergent_kernel), "divergent barrier");
    expect_trouble(trouble_of(config, one_block(128), half_barrier_kernel), "deadlock");
    expect_trouble(trouble_of(config, one_block(32), early_exit_kernel, data), "exit");
    expect_trouble(trouble_of(config, one_block(2), outside_mask_kernel), "not in mask");
    expect_trouble(trouble_of(config, one_block(20), early_exit_kernel, data), "exited lanes");
    expect_trouble(trouble_of(config, one_block(1), misaligned_kernel, data), "misaligned");
    if (!kAddressChecker) {
      expect_trouble(trouble_of(config, one_block(1), write_kernel, data, kCount),
                     "does not exist");
    }
    if (config.async == twin::Async::kLazy) {
      expect_trouble(trouble_of(config, one_block(1), unfinished_copy_kernel, data), "in flight");
    }
  }
}

TEST(Twin, RefusesShapesThatNoDeviceTakes) {
  expect_trouble(trouble_of({}, one_block(1025), divergent_kernel), "1 to 1024 threads");
  expect_trouble(trouble_of({}, one_block(0), divergent_kernel), "1 to 1024 threads");
  expect_trouble(trouble_of({}, {.grid = {1, 65536}}, divergent_kernel), "65535");
  expect_trouble(trouble_of({}, {.shared_bytes = 228 * 1024}, divergent_kernel), "227 KiB");
  expect_trouble(
      trouble_of({}, {.grid = {9}, .residency = device::Residency::kAllBlocks}, divergent_kernel),
      "must fit at once");
}

TEST(Twin, BusyWaitingWithoutEndIsReported) {
  device::Stream stream;
  const DeviceArray<std::uint64_t> flag(std::vector<std::uint64_t>{0}, stream);
  for (const auto order : {twin::Order::kLifo, twin::Order::kPriority}) {
    twin::Config config;
    config.order = order;
    config.spin_limit_s = 0.1;
    expect_trouble(trouble_of(config, one_block(32), endless_kernel, flag.data()), "busy waiting");
  }
}

// What may wait for all work of the device would wait for the kernel, and its peer for this thread.
TEST(Twin, OnlyMemoryThatNeedsNoWaitIsMadeWhileAKernelWaitsForAPeer) {
  device::Stream stream;
  device::Stream peer;
  const DeviceArray<std::uint64_t> flag(std::vector<std::uint64_t>{0}, peer);
  device::launch(endless_kernel, {.block = {32}, .residency = device::Residency::kAllBlocks},
                 stream, flag.data());
  for (const auto kind : {device::MemoryKind::kManaged, device::MemoryKind::kShared,
                          device::MemoryKind::kPinnedHost}) {
    EXPECT_THROW(device::Memory(8, kind), device::Error);
  }
  { const device::Memory memory(8); }
  device::launch(raise_kernel, one_block(1), peer, flag.data());
  stream.synchronize();
  const device::Memory memory(8, device::MemoryKind::kManaged);
}

TEST(Twin, AFailedStreamSaysSoAtEveryCallAndStillMarksEvents) {
  device::Stream stream;
  device::Event event;
  device::launch(half_barrier_kernel, one_block(128), stream);
  try {
    event.record(stream);
  } catch (const device::Error&) {
  }
  event.synchronize();
  EXPECT_THROW(stream.synchronize(), device::Error);
  EXPECT_THROW(stream.synchronize(), device::Error);
  EXPECT_THROW(device::launch(half_barrier_kernel, one_block(128), stream), device::Error);
}

TEST(Twin, UninitialisedSharedMemoryIsNotANumber) {
  device::Stream stream;
  const DeviceArray<float> out(32);
  device::launch(uninitialised_kernel, one_block(32), stream, out.data());
  const auto values = out.download(stream);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(std::isnan(values[i]), i <= 3);
}

// Each runs one of the kernels above and counts wrong results.
int wrong_after_async(device::Stream& stream, const std::vector<float>& source) {
  const DeviceArray<float> from(source, stream), out(64);
  device::launch(async_kernel, one_block(64), stream, from.data(), out.data());
  const auto values = out.download(stream);
  int wrong = 0;
  for (std::size_t i = 0; i < 64; ++i) wrong += values[i] == source[255 - i] ? 0 : 1;
  return wrong;
}
int wrong_after_handover(device::Stream& stream, const std::vector<float>& source) {
  const DeviceArray<float> from(source, stream), buffer(64), out(64);
  const DeviceArray<std::uint64_t> flag(std::vector<std::uint64_t>{0}, stream);
  device::launch(handover_kernel,
                 {.grid = {2}, .block = {64}, .residency = device::Residency::kAllBlocks}, stream,
                 from.data(), buffer.data(), out.data(), flag.data());
  const auto values = out.download(stream);
  int wrong = 0;
  for (std::size_t i = 0; i < 64; ++i) wrong += values[i] == source[i] ? 0 : 1;
  return wrong;
}
int wrong_after_reversal(device::Stream& stream, const std::vector<float>&) {
  const DeviceArray<float> out(32);
  device::launch(no_syncwarp_kernel, one_block(32), stream, out.data());
  const auto values = out.download(stream);
  int wrong = 0;
  for (std::size_t i = 0; i < 32; ++i) wrong += values[i] == static_cast<float>(31 - i) ? 0 : 1;
  return wrong;
}

struct MissingOrder {
  const char* removed;
  int (*wrong)(device::Stream& stream, const std::vector<float>& source);
  bool only_by_detector;  // the twin's memory is as strong as the host's: no result can be wrong
};
constexpr MissingOrder kMissingOrders[] = {
    {"async_wait", wrong_after_async, false},
    {"async_barrier", wrong_after_async, false},
    {"handover_written", wrong_after_handover, false},
    {"handover_acquired", wrong_after_handover, false},
    {"handover_release", wrong_after_handover, true},
    {"warp_written", wrong_after_reversal, false},
};

bool shows(const MissingOrder& missing, twin::Config config, const std::vector<float>& source) {
  config.removed = missing.removed;
  const twin::Scope scope(config);
  const long before = races_seen();
  try {
    device::Stream stream;
    if (missing.wrong(stream, source) > 0) return true;
  } catch (const device::Error&) {
    return true;
  }
  return races_seen() > before;
}

TEST(Twin, MissingOrderShowsUnderSomeSchedule) {
  const std::vector<float> source = normal_values(256, 2);
  for (const MissingOrder& missing : kMissingOrders) {
    if (missing.only_by_detector && !kRaceDetector) continue;
    const ExpectRaces expect(Enough::kFirst);
    bool seen = false;
    for (const twin::Config& config : schedules(8)) seen = seen || shows(missing, config, source);
    EXPECT_TRUE(seen) << missing.removed;
  }
}

// The detector looks away from a thread whose race was enough, but not in the handler of a fault.
TEST(Twin, AnAccessToNoMemoryEndsALaunchThatHasRaced) {
  if (kAddressChecker) GTEST_SKIP() << "the address checker ends the program at such an access";
  constexpr int kCount = 128;  // as above
  device::Stream stream;
  const DeviceArray<float> out(std::vector<float>(kCount), stream);
  const ExpectRaces expect(Enough::kFirst);
  expect_trouble(trouble_of({}, one_block(2), racing_write_kernel, out.data(), kCount),
                 "does not exist");
}

TEST(Twin, TheSameSeedGivesTheSameInterleaving) {
  if (kRaceDetector) GTEST_SKIP() << "thousands of expected reports: run by test_gpu";
  const auto run = [](std::uint64_t seed) {
    const twin::Scope scope(
        {.order = twin::Order::kRandom, .seed = seed, .removed = "handover_acquired"});
    device::Stream stream;
    const DeviceArray<float> from(normal_values(64, 3), stream), buffer(64), out(64);
    const DeviceArray<std::uint64_t> flag(std::vector<std::uint64_t>{0}, stream);
    device::launch(handover_kernel,
                   {.grid = {2}, .block = {64}, .residency = device::Residency::kAllBlocks}, stream,
                   from.data(), buffer.data(), out.data(), flag.data());
    std::vector<bool> arrived;
    for (const float value : out.download(stream)) arrived.push_back(!std::isnan(value));
    return arrived;
  };
  const ExpectRaces expect;
  bool differ = false;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    EXPECT_EQ(run(seed), run(seed));
    differ = differ || run(seed) != run(seed + 1);
  }
  EXPECT_TRUE(differ);
}

#if defined(__SANITIZE_ADDRESS__)

TEST(TwinDeathTest, AddressCheckerSeesEveryAccessOutOfBounds) {
  const auto run = [](auto kernel, std::size_t shared_bytes, int index) {
    device::Stream stream;
    const DeviceArray<float> out(32);
    device::launch(kernel, {.block = {32}, .shared_bytes = shared_bytes}, stream, out.data(),
                   index);
    stream.synchronize();
  };
  run(write_kernel, 0, 31);
  run(shared_write_kernel, 0, 0);
  run(dynamic_write_kernel, 128, 31);
  EXPECT_DEATH(run(write_kernel, 0, 32), "AddressSanitizer");
  EXPECT_DEATH(run(shared_write_kernel, 0, 1), "AddressSanitizer|out of bounds");
  EXPECT_DEATH(run(dynamic_write_kernel, 128, 32), "AddressSanitizer");
}

#endif

}  // namespace
}  // namespace sinew
