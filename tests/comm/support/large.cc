#include <fmt/core.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "sched/base/error.h"
#include "tests/comm/support/collective_case.h"
#include "tests/comm/support/exchanges.h"

namespace sinew::comm::testing {

namespace {

constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 5;

std::uint8_t value_at(std::int64_t index, int rank) {
  return static_cast<std::uint8_t>(index * 31 + (index >> 20) + rank * 101);
}

struct Stretch {
  std::int64_t begin;
  std::int64_t end;
};

void fill(std::uint8_t* data, Stretch stretch, int rank) {
  for (std::int64_t i = stretch.begin; i < stretch.end; ++i) data[i] = value_at(i, rank);
}

// The first wrong index, -1: none.
std::int64_t first_wrong(const std::uint8_t* data, Stretch stretch, int rank) {
  for (std::int64_t i = stretch.begin; i < stretch.end; ++i) {
    if (data[i] != value_at(i, rank)) return i;
  }
  return -1;
}

std::string wrong_byte(int rank, const char* what, std::int64_t index) {
  return fmt::format("rank {}: {} of {} bytes: byte {} is wrong", rank, what, kCount, index);
}

// The operations whose input and output differ in size; data: [kCount], overwritten.
std::string check_large_parts(Communicator& communicator, std::uint8_t* data) {
  const int rank = communicator.rank();
  const int world = communicator.world();
  const std::int64_t part = kCount / world;
  const std::int64_t whole = part * world;
  const std::unique_ptr<std::uint8_t[]> other(new std::uint8_t[kCount]);
  // Whether `count` bytes of other are those from `begin` on of what `from` has, times `factor`.
  const auto differs = [&](std::int64_t at, std::int64_t begin, std::int64_t count, int from,
                           int factor) -> std::int64_t {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto expected = static_cast<std::uint8_t>(value_at(begin + i, from) * factor);
      if (other[static_cast<std::size_t>(at + i)] != expected) return at + i;
    }
    return -1;
  };
  fill(data, {0, kCount}, 0);
  communicator.reduce_scatter(data, other.get(), part, DType::kU8, ReduceOp::kSum);
  if (const std::int64_t at = differs(0, rank * part, part, 0, world); at >= 0)
    return wrong_byte(rank, "reduce_scatter", at);
  communicator.reduce(data, other.get(), kCount, DType::kU8, ReduceOp::kMax, 0);
  if (const std::int64_t at = rank == 0 ? differs(0, 0, whole, 0, 1) : -1; at >= 0)
    return wrong_byte(rank, "reduce", at);
  communicator.scatter(data, other.get(), part, DType::kU8, 0);
  if (const std::int64_t at = differs(0, rank * part, part, 0, 1); at >= 0)
    return wrong_byte(rank, "scatter", at);
  fill(data, {0, whole}, rank);
  communicator.gather(data + rank * part, other.get(), part, DType::kU8, 0);
  for (int from = 0; rank == 0 && from < world; ++from) {
    if (const std::int64_t at = differs(from * part, from * part, part, from, 1); at >= 0)
      return wrong_byte(rank, "gather", at);
  }
  communicator.all_to_all(data, other.get(), part, DType::kU8);
  for (int from = 0; from < world; ++from) {
    if (const std::int64_t at = differs(from * part, rank * part, part, from, 1); at >= 0)
      return wrong_byte(rank, "all_to_all", at);
  }
  return {};
}

std::int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  }
  return 0;
}

}  // namespace

std::string why_not_large(int world) {
  if (!wants_matrix()) return kMatrixSkipped;
  // Two buffers at most, and some room.
  const std::int64_t needed = world * 2 * kCount + (std::int64_t{2} << 30);
  const std::int64_t available = available_bytes();
  if (available >= needed) return {};
  return fmt::format("needs {} GiB of free memory for {} ranks, of which there are {}",
                     needed >> 30, world, available >> 30);
}

std::string check_large(Communicator& communicator) {
  const int rank = communicator.rank();
  const int world = communicator.world();
  const std::unique_ptr<std::uint8_t[]> data(new std::uint8_t[kCount]);
  const auto wrong = [&](const char* what, std::int64_t index) {
    return wrong_byte(rank, what, index);
  };
  if (rank == 0) fill(data.get(), {0, kCount}, 0);
  communicator.broadcast(data.get(), data.get(), kCount, DType::kU8, 0);
  if (const std::int64_t at = first_wrong(data.get(), {0, kCount}, 0); at >= 0)
    return wrong("broadcast", at);
  // The sum of what all have: each byte times the world.
  communicator.all_reduce(data.get(), data.get(), kCount, DType::kU8, ReduceOp::kSum);
  for (std::int64_t i = 0; i < kCount; ++i) {
    if (data[static_cast<std::size_t>(i)] != static_cast<std::uint8_t>(value_at(i, 0) * world))
      return wrong("all_reduce", i);
  }
  // Parts that fit an int, of a whole that does not.
  const std::int64_t part = kCount / world;
  fill(data.get(), {rank * part, (rank + 1) * part}, rank);
  communicator.all_gather(data.get() + rank * part, data.get(), part, DType::kU8);
  for (int from = 0; from < world; ++from) {
    const std::int64_t at = first_wrong(data.get(), {from * part, (from + 1) * part}, from);
    if (at >= 0) return wrong("all_gather", at);
  }
  if (std::string reason = check_large_parts(communicator, data.get()); !reason.empty())
    return reason;
  if (world == 1) return {};
  // One message.
  if (rank == 0) {
    fill(data.get(), {0, kCount}, 7);
    communicator.send(data.get(), kCount, DType::kU8, 1);
  } else if (rank == 1) {
    communicator.recv(data.get(), kCount, DType::kU8, 0);
    if (const std::int64_t at = first_wrong(data.get(), {0, kCount}, 7); at >= 0)
      return wrong("message", at);
  }
  communicator.barrier();
  return {};
}

std::string check_counts(Communicator& communicator) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const int world = communicator.world();
  std::int64_t x = 0;
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(world), kMost / 2);
  const auto refused = [](const auto& call) {
    try {
      call();
    } catch (const UsageError& error) {
      return std::string(error.what()).find("2^63") != std::string::npos;
    }
    return false;
  };
  const bool all =
      refused([&] { communicator.all_reduce(&x, &x, kMost / 4, DType::kI64, ReduceOp::kSum); }) &&
      refused([&] { communicator.all_gather(&x, &x, kMost / 8 / world + 1, DType::kI64); }) &&
      refused([&] { communicator.all_gather_v(&x, &x, counts, DType::kI32); }) &&
      refused([&] { communicator.send(&x, kMost / 4, DType::kI64, 0); });
  return all ? "" : "a count whose bytes no integer holds was not refused";
}

}  // namespace sinew::comm::testing
