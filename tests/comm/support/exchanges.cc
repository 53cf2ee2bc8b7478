#include "tests/comm/support/exchanges.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/comm/support/collective_case.h"

namespace sinew::comm::testing {

namespace {

using Values = std::vector<std::int64_t>;

Values pattern(std::int64_t count, int from, int to, int salt) {
  Values values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), (from * 100 + to) * 1000 + salt);
  return values;
}

// Empty, in the envelope, in a slot, over many slots.
const Values kCounts = {0, 1, 4, 5, 100, 2047, 2048, 2049, 40'000};

}  // namespace

std::string check_messages(Communicator& communicator) {
  const int rank = communicator.rank();
  const int world = communicator.world();
  for (std::size_t size = 0; size < kCounts.size(); ++size) {
    const std::int64_t count = kCounts[size];
    std::vector<Request> requests;
    std::vector<Values> sources;
    sources.reserve(static_cast<std::size_t>(world) * 2);
    for (int peer = 0; peer < world; ++peer) {
      if (peer == rank) continue;
      for (const int tag : {3, 9}) {
        sources.push_back(pattern(count, rank, peer, tag));
        requests.push_back(
            communicator.start_send(sources.back().data(), count, DType::kI64, peer, tag));
      }
    }
    for (int peer = world - 1; peer >= 0; --peer) {
      if (peer == rank) continue;
      for (const int tag : {9, 3}) {
        Values target(static_cast<std::size_t>(count), -1);
        communicator.recv(target.data(), count, DType::kI64, peer, tag);
        if (target != pattern(count, peer, rank, tag)) {
          return fmt::format("rank {}: message of {} from {} with tag {} is wrong", rank, count,
                             peer, tag);
        }
      }
    }
    for (Request& request : requests) request.wait();
  }
  return {};
}

std::string check_self_messages(Communicator& communicator) {
  const int rank = communicator.rank();
  for (const std::int64_t count : kCounts) {
    const Values first = pattern(count, rank, rank, 1);
    const Values second = pattern(count, rank, rank, 2);
    Values target(static_cast<std::size_t>(count), -1);
    communicator.send(first.data(), count, DType::kI64, rank, 5);
    communicator.send(second.data(), count, DType::kI64, rank, 5);
    communicator.recv(target.data(), count, DType::kI64, rank, 5);
    if (target != first)
      return fmt::format("rank {}: first message of {} to itself is wrong", rank, count);
    communicator.recv(target.data(), count, DType::kI64, rank, 5);
    if (target != second)
      return fmt::format("rank {}: second message of {} to itself is wrong", rank, count);
    Request early = communicator.start_recv(target.data(), count, DType::kI64, rank, 6);
    communicator.send(first.data(), count, DType::kI64, rank, 6);
    early.wait();
    if (target != first)
      return fmt::format("rank {}: receive of {} before its send is wrong", rank, count);
  }
  return {};
}

std::string check_split(Communicator& communicator) {
  const int rank = communicator.rank();
  const int world = communicator.world();
  const auto check_sum = [](Communicator& group, std::int64_t value,
                            std::int64_t want) -> std::string {
    std::int64_t sum = 0;
    group.all_reduce(&value, &sum, 1, DType::kI64, ReduceOp::kSum);
    if (sum == want) return {};
    return fmt::format("rank {} of {}: sum in the group is {}, not {}", group.rank(), group.world(),
                       sum, want);
  };
  const auto parity = communicator.split(rank % 2, -rank);
  std::int64_t same_parity = 0;
  int larger = 0;
  for (int peer = rank % 2; peer < world; peer += 2) {
    same_parity += peer;
    if (peer > rank) ++larger;
  }
  if (parity->rank() != larger)
    return fmt::format("rank {}: reversed keys give rank {}", rank, parity->rank());
  const auto some = communicator.split(rank < 3 ? 7 : -1, rank);
  if ((some != nullptr) != (rank < 3))
    return fmt::format("rank {}: in a group it did not ask for", rank);
  const std::int64_t everyone = std::int64_t{world} * (world - 1) / 2;
  for (int round = 0; round < 20; ++round) {
    if (std::string wrong = check_sum(*parity, rank, same_parity); !wrong.empty()) return wrong;
    if (std::string wrong = check_sum(communicator, rank, everyone); !wrong.empty()) return wrong;
    if (some != nullptr) {
      const int members = std::min(world, 3);
      if (std::string wrong = check_sum(*some, rank, members * (members - 1) / 2); !wrong.empty())
        return wrong;
    }
  }
  return check_messages(*parity);
}

std::string check_symmetric(Communicator& communicator) {
  const int rank = communicator.rank();
  const int world = communicator.world();
  const std::int64_t most = 200'000;
  Symmetric input = communicator.allocate(static_cast<std::size_t>(most) * 8 + 64);
  Symmetric output = communicator.allocate(static_cast<std::size_t>(most) * 8 + 64);
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{5000}, most}) {
    for (const int shift : {0, 3}) {
      auto* source = reinterpret_cast<std::int64_t*>(input.get()) + shift;
      auto* target = reinterpret_cast<std::int64_t*>(output.get()) + shift;
      for (std::int64_t i = 0; i < count; ++i) source[i] = i * (rank + 1);
      communicator.all_reduce(source, target, count, DType::kI64, ReduceOp::kSum);
      for (int twice = 0; twice < 2; ++twice) {
        for (std::int64_t i = 0; i < count; ++i) {
          if (target[i] != i * world * (world + 1) / 2) {
            return fmt::format("rank {}: symmetric all-reduce of {}, shift {}: element {} is wrong",
                               rank, count, shift, i);
          }
        }
        for (std::int64_t i = 0; i < count; ++i) target[i] = i * (rank + 1);
        communicator.all_reduce(target, target, count, DType::kI64, ReduceOp::kSum);
      }
    }
  }
  const int next = (rank + 1) % world;
  auto* values = reinterpret_cast<std::int64_t*>(input.get());
  auto* received = reinterpret_cast<std::int64_t*>(output.get());
  for (std::int64_t i = 0; i < most; ++i) values[i] = i + rank;
  Request sent = communicator.start_send(values, most, DType::kI64, next);
  const int previous = (rank + world - 1) % world;
  communicator.recv(received, most, DType::kI64, previous);
  sent.wait();
  for (std::int64_t i = 0; i < most; ++i) {
    if (received[i] != i + previous)
      return fmt::format("rank {}: symmetric message: element {} is wrong", rank, i);
  }
  if (rank % 2 == 0) {
    input.reset();
    output.reset();
  } else {
    output.reset();
    input.reset();
  }
  communicator.barrier();
  return {};
}

namespace {

// Values whose sum depends on the order of the additions.
void fill_uneven(float* data, std::int64_t count, int rank) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto mixed =
        static_cast<std::uint32_t>(i * 2654435761U + static_cast<unsigned>(rank) * 97U);
    data[i] =
        std::ldexp(1.0F + static_cast<float>(mixed % 1000) / 1000.0F, static_cast<int>(mixed % 21));
  }
}

struct FloatBuffers {
  float* input;
  float* output;
};

void call_on(Communicator& communicator, sched::Collective op, const FloatBuffers& buffers,
             std::int64_t count, ReduceOp reduce) {
  const Call call{.algorithm = op == sched::Collective::kAllReduce ? "two_shot" : "direct"};
  if (op == sched::Collective::kAllReduce) {
    communicator.all_reduce(buffers.input, buffers.output, count, DType::kF32, reduce, call);
  } else if (op == sched::Collective::kReduceScatter) {
    communicator.reduce_scatter(buffers.input, buffers.output, count, DType::kF32, reduce, call);
  } else {
    communicator.all_gather(buffers.input, buffers.output, count, DType::kF32, call);
  }
}

}  // namespace

std::string check_symmetric_bits(Communicator& communicator) {
  using sched::Collective;
  const int rank = communicator.rank();
  const int world = communicator.world();
  const std::int64_t most = 120'000;
  const auto room = static_cast<std::size_t>(most * world);
  const Symmetric first = communicator.allocate(room * sizeof(float));
  const Symmetric second = communicator.allocate(room * sizeof(float));
  std::vector<float> plain_input(room);
  std::vector<float> plain_output(room);
  const FloatBuffers plain{plain_input.data(), plain_output.data()};
  const FloatBuffers symmetric{reinterpret_cast<float*>(first.get()),
                               reinterpret_cast<float*>(second.get())};
  for (const Collective op :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    for (const ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kAvg}) {
      for (const std::int64_t count : {std::int64_t{world}, std::int64_t{5003}, most}) {
        const std::int64_t inputs = op == Collective::kReduceScatter ? count * world : count;
        const std::int64_t outputs = op == Collective::kAllGather ? count * world : count;
        const std::int64_t own_input = op == Collective::kAllGather ? rank * count : 0;
        const std::int64_t own_output = op == Collective::kReduceScatter ? rank * count : 0;
        const FloatBuffers in_place{symmetric.input + own_input, symmetric.input + own_output};
        // Also when one rank's buffers are not symmetric.
        const FloatBuffers mixed = rank == world - 1 ? plain : symmetric;
        fill_uneven(plain.input, inputs, rank);
        call_on(communicator, op, plain, count, reduce);
        const std::vector<float> want(plain.output, plain.output + outputs);
        for (const FloatBuffers& buffers : {symmetric, in_place, mixed}) {
          fill_uneven(buffers.input, inputs, rank);
          call_on(communicator, op, buffers, count, reduce);
          if (!std::equal(want.begin(), want.end(), buffers.output)) {
            return fmt::format("rank {}: {} of {} {} on symmetric memory has other bits", rank,
                               sched::name_of(op), count, name_of(reduce));
          }
        }
      }
    }
  }
  return {};
}

std::string check_several_in_flight(Communicator& communicator) {
  const int rank = communicator.rank();
  const int world = communicator.world();
  const std::int64_t count = 20'000;
  std::vector<Values> buffers;
  std::vector<Request> requests;
  for (int call = 0; call < 7; ++call) {
    buffers.push_back(pattern(count, 0, rank, call));
    requests.push_back(communicator.start_all_reduce(buffers.back().data(), buffers.back().data(),
                                                     count, DType::kI64, ReduceOp::kSum));
    if (call == 3) communicator.barrier();
  }
  if (std::string wrong = check_messages(communicator); !wrong.empty()) return wrong;
  for (std::size_t call = requests.size(); call-- > 0;) {
    if (call % 2 == 0) {
      while (!requests[call].test()) continue;
    } else {
      requests[call].wait();
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t want = std::int64_t{world} * (world - 1) / 2 * 1000 +
                                world * (static_cast<std::int64_t>(call) + i);
      if (buffers[call][static_cast<std::size_t>(i)] != want) {
        return fmt::format("rank {}: call {} of several in flight: element {} is wrong", rank, call,
                           i);
      }
    }
  }
  return {};
}

}  // namespace sinew::comm::testing
