// The runtime seam: order within a stream, events between streams, graphs, memory, and mapping
// between processes.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "kernels/device/runtime.h"
#include "kernels/reduce_gpu.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/races.h"

namespace sinew {
namespace {

using namespace testing;

constexpr std::size_t kCount = 1000;

void add(const DeviceArray<float>& target, const DeviceArray<float>& other, device::Stream& stream,
         std::int64_t count = kCount) {
  kernels::reduce(ReduceOp::kSum, DType::kF32, target.data(), target.data(), other.data(), count,
                  stream);
}

TEST(DeviceRuntime, AStreamKeepsOrderAndAnEventOrdersTwo) {
  device::Stream first, second;
  const DeviceArray<float> x(normal_values(kCount, 1), first), y(normal_values(kCount, 2), first);
  const auto expected_x = x.download(first);
  const auto expected_y = y.download(first);
  device::Event written, read;
  add(x, y, first);
  written.record(first);
  second.wait(written);
  add(y, x, second);
  read.record(second);
  first.wait(read);
  first.fill(x.data(), 0, kCount * sizeof(float));
  first.synchronize();
  EXPECT_TRUE(written.ready());
  EXPECT_GE(read.seconds_since(written), 0.0);
  const auto result = y.download(second);
  for (std::size_t i = 0; i < kCount; ++i)
    EXPECT_EQ(result[i], expected_y[i] + (expected_x[i] + expected_y[i]));
  EXPECT_EQ(x.download(first), std::vector<float>(kCount, 0.0F));
  EXPECT_TRUE(first.idle());
}

TEST(DeviceRuntime, AMissingEventIsARace) {
  if (!kRaceDetector) GTEST_SKIP() << "needs the race detector: run by test_gpu_tsan";
  const ExpectRaces expect;
  const long before = races_seen();
  device::Stream first, second;
  const DeviceArray<float> x(normal_values(kCount, 1), first), y(normal_values(kCount, 2), first);
  // A thread for each stream: one that had waited for the first stream would take part in the
  // second one's lock, and so order the two whenever that one had not begun.
  const auto use = [](const auto& target, const auto& other, device::Stream& stream) {
    add(target, other, stream, 8);
    stream.synchronize();
  };
  std::thread one([&] { use(x, y, first); });
  std::thread other([&] { use(y, x, second); });
  one.join();
  other.join();
  EXPECT_GT(races_seen(), before);
}

TEST(DeviceRuntime, AGraphRepeatsTheWorkOfEveryStreamThatJoined) {
  device::Stream origin, side;
  const DeviceArray<float> x(std::vector<float>(kCount, 1.0F), origin),
      y(std::vector<float>(kCount, 2.0F), origin);
  device::Event forked, joined;
  origin.begin_capture();
  add(x, y, origin);
  forked.record(origin);
  side.wait(forked);
  add(y, x, side);
  joined.record(side);
  origin.wait(joined);
  const device::Graph graph = origin.end_capture();
  EXPECT_EQ(x.download(origin)[0], 1.0F);  // recorded, not run
  graph.launch(origin);
  graph.launch(origin);
  EXPECT_EQ(x.download(origin)[kCount - 1], 8.0F);  // 1+2, 2+3, 3+5, 5+8
  EXPECT_EQ(y.download(side)[0], 13.0F);
}

TEST(DeviceRuntime, MemoryIsAlignedMovableAndStartsAsNoNumber) {
  device::Stream stream;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{1} << 20}) {
    device::Memory memory(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0U);
    const void* data = memory.data();
    const device::Memory moved = std::move(memory);
    EXPECT_EQ(moved.data(), data);
    EXPECT_EQ(moved.size_bytes(), size);
  }
  const DeviceArray<float> fresh(3);
  for (const float value : fresh.download(stream)) EXPECT_TRUE(std::isnan(value));
}

TEST(DeviceRuntime, DevicesOutsideTheMachineAreRefusedInOneLine) {
  EXPECT_THROW(device::select(device::count()), UsageError);
  EXPECT_THROW(device::select(-1), UsageError);
}

TEST(DeviceRuntime, AnotherProcessMapsMemoryByItsHandle) {
  if (kRaceDetector) GTEST_SKIP() << "the race detector does not follow processes: run by test_gpu";
  EXPECT_THROW(static_cast<void>(device::export_memory(device::Memory(8))), device::Error)
      << "the driver may have put it into one block with other memory";
  device::Memory memory(kCount * sizeof(float), device::MemoryKind::kShared);
  {
    device::Stream stream;
    stream.fill(memory.data(), 0, memory.size_bytes());
    stream.synchronize();
  }
  const device::IpcHandle handle = device::export_memory(memory);
  EXPECT_THROW(device::Mapping{handle}, device::Error);  // not for the own process
  EXPECT_THROW(device::Mapping{device::IpcHandle{}}, device::Error);
  const pid_t child = fork();
  if (child == 0) {
    const device::Mapping mapping(handle);
    static_cast<float*>(mapping.data())[kCount - 1] = 7.0F;
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory.as<float>()[kCount - 1], 7.0F);
}

TEST(DeviceRuntime, MoreMemoryThanThereIsIsAnErrorAtOnce) {
  EXPECT_THROW(device::Memory(device::properties().memory_bytes + 1), device::Error);
  EXPECT_THROW(device::Memory(~std::size_t{0}), device::Error);
}

}  // namespace
}  // namespace sinew
