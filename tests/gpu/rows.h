// Every row of sched's table on device memory, compared bit for bit with the CPU executor.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/device/resident.h"
#include "kernels/element.h"
#include "sched/verify.h"
#include "tests/gpu/device_array.h"

namespace sinew::testing {

// Small blocks and slots, so that everything is cut.
inline comm::ResidentOptions small_options(int slots) {
  return {.channels = 2, .slots = slots, .slot_bytes = 1024, .threads = 32, .timeout_s = 3600};
}

struct RowCase {
  DType dtype;
  ReduceOp reduce;
  std::int64_t count;
  int shift;  // elements by which buffers are off their alignment
};
// Types, reductions, counts and alignments that the loops over rows take turns in.
inline constexpr RowCase kRowCases[] = {
    {DType::kF32, ReduceOp::kSum, 150, 0}, {DType::kBf16, ReduceOp::kSum, 200, 1},
    {DType::kF64, ReduceOp::kProd, 41, 0}, {DType::kF32, ReduceOp::kAvg, 1, 0},
    {DType::kU8, ReduceOp::kMax, 700, 3},  {DType::kF16, ReduceOp::kMin, 77, 0},
    {DType::kI64, ReduceOp::kSum, 0, 0},   {DType::kI32, ReduceOp::kProd, 130, 1},
    {DType::kF32, ReduceOp::kSum, 300, 1}, {DType::kF16, ReduceOp::kSum, 90, 1},
    {DType::kI8, ReduceOp::kMin, 99, 1},   {DType::kU32, ReduceOp::kSum, 61, 0},
    {DType::kU64, ReduceOp::kProd, 33, 0}, {DType::kE4m3, ReduceOp::kSum, 119, 1},
    {DType::kE5m2, ReduceOp::kMax, 50, 0},
};

inline std::size_t elements(std::int64_t blocks, const RowCase& c) {
  return static_cast<std::size_t>(blocks * c.count);
}

// `count` elements of the type as bytes: normal floats, any integers.
inline std::vector<std::byte> make_input(const RowCase& c, std::size_t count, int rank) {
  const std::vector<float> values =
      normal_values(count, static_cast<std::uint32_t>(rank) * 7 + 1, 1.0F);
  std::vector<std::byte> bytes(count * size_of(c.dtype));
  visit(c.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < count; ++i) {
      T value{};
      if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(static_cast<std::int64_t>(values[i] * 100));
      } else {
        value = kernels::narrow<T>(values[i]);
      }
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

struct BlockCounts {
  std::int64_t input;
  std::int64_t output;
};
inline BlockCounts blocks_of(sched::Collective op, int world) {
  switch (op) {
    case sched::Collective::kReduceScatter:
      return {world, 1};
    case sched::Collective::kAllGather:
    case sched::Collective::kGather:
      return {1, world};
    case sched::Collective::kScatter:
      return {world, 1};
    case sched::Collective::kAllToAll:
      return {world, world};
    case sched::Collective::kBarrier:
      return {0, 0};
    default:
      return {1, 1};
  }
}

// One call on the device; gives the output's bytes. Outputs start as NaN.
template <typename Call>
std::vector<std::byte> on_device(const RowCase& c, const std::vector<std::byte>& input,
                                 std::size_t output_bytes, device::Stream& stream, Call&& call) {
  const auto shift = static_cast<std::size_t>(c.shift) * size_of(c.dtype);
  const DeviceArray<std::byte> d_input(input.size() + shift), d_output(output_bytes + shift);
  stream.copy(d_input.data() + shift, input.data(), input.size());
  call(comm::ResidentWork{d_input.data() + shift, d_output.data() + shift, c.count, c.dtype,
                          c.reduce});
  const std::vector<std::byte> all = d_output.download(stream);
  return {all.begin() + static_cast<std::ptrdiff_t>(shift), all.end()};
}

inline std::vector<std::byte> on_cpu(comm::Communicator& communicator, const sched::Algorithm& row,
                                     int root, const RowCase& c,
                                     const std::vector<std::byte>& input,
                                     std::size_t output_bytes) {
  std::vector<std::byte> output(output_bytes);
  const comm::Call call{.algorithm = row.name};
  switch (row.op) {
    case sched::Collective::kAllReduce:
      communicator.all_reduce(input.data(), output.data(), c.count, c.dtype, c.reduce, call);
      break;
    case sched::Collective::kReduceScatter:
      communicator.reduce_scatter(input.data(), output.data(), c.count, c.dtype, c.reduce, call);
      break;
    case sched::Collective::kAllGather:
      communicator.all_gather(input.data(), output.data(), c.count, c.dtype, call);
      break;
    case sched::Collective::kBroadcast:
      communicator.broadcast(input.data(), output.data(), c.count, c.dtype, root, call);
      break;
    case sched::Collective::kReduce:
      communicator.reduce(input.data(), output.data(), c.count, c.dtype, c.reduce, root, call);
      break;
    case sched::Collective::kGather:
      communicator.gather(input.data(), output.data(), c.count, c.dtype, root, call);
      break;
    case sched::Collective::kScatter:
      communicator.scatter(input.data(), output.data(), c.count, c.dtype, root, call);
      break;
    case sched::Collective::kAllToAll:
      communicator.all_to_all(input.data(), output.data(), c.count, c.dtype, call);
      break;
    case sched::Collective::kBarrier:
      communicator.barrier(call);
      break;
  }
  return output;
}

// What the ranks of one world do for every row that accepts it.
struct RowsRun {
  int slots = 1;
  const char* transport = "local";  // of the CPU's communicator
};
inline void expect_rows_equal_the_cpu(comm::Bootstrap& bootstrap, const RowsRun& how) {
  const int world = bootstrap.world();
  const int rank = bootstrap.rank();
  const auto communicator = comm::Communicator::from_bootstrap(
      bootstrap, {.transport = how.transport, .small_calls = false, .fuse = false});
  comm::Resident resident(bootstrap, small_options(how.slots));
  device::Stream stream;
  auto turn = static_cast<std::size_t>(world * 5 + how.slots);
  for (const sched::Algorithm& row : sched::algorithms()) {
    const int root = sched::Contract{.op = row.op}.rooted() ? world - 1 : 0;
    if (!row.refuse({.world = world, .root = root}).empty()) continue;
    const sched::Verdict verdict =
        sched::verify(sched::generate(row, {.world = world, .root = root}));
    if (verdict.facts.credits_in_order > how.slots) continue;  // refused; the wider run has it
    const RowCase& c = kRowCases[turn % std::size(kRowCases)];
    const comm::Protocol protocol = comm::kProtocols[turn % std::size(comm::kProtocols)];
    ++turn;
    const BlockCounts blocks = blocks_of(row.op, world);
    const std::vector<std::byte> input = make_input(c, elements(blocks.input, c), rank);
    const std::size_t output_bytes = elements(blocks.output, c) * size_of(c.dtype);
    const std::vector<std::byte> actual =
        on_device(c, input, output_bytes, stream, [&](const comm::ResidentWork& work) {
          resident.run(row, root, protocol, work, stream);
          resident.check(stream);
        });
    const std::vector<std::byte> expected =
        on_cpu(*communicator, row, root, c, input, output_bytes);
    // Reduce and gather have an output on the root only.
    const bool at_root =
        row.op == sched::Collective::kReduce || row.op == sched::Collective::kGather;
    if (at_root && rank != root) continue;
    EXPECT_TRUE(actual == expected)
        << name_of(row.op) << " by " << row.name << ", world " << world << ", rank " << rank << ", "
        << name_of(protocol) << ", " << how.slots << " slots, " << c.count << " "
        << name_of(c.dtype) << " " << name_of(c.reduce);
  }
  resident.close(bootstrap);
}

}  // namespace sinew::testing
