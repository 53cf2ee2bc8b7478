#include "bench/link_model.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <string_view>

#include "bench/repeat.h"
#include "kernels/reduce.h"
#include "sched/base/check.h"

namespace sinew::bench {
namespace {

// From a message within one cache line to one beyond the caches of a core.
constexpr std::array<std::int64_t, 6> kMessageBytes = {8,         1 << 10, 16 << 10,
                                                       128 << 10, 1 << 20, 4 << 20};
// What the ranks of one all-gather may receive together, and hold: in a second or so even where
// they share a core, which is all messages up to 11 ranks.
constexpr std::int64_t kGatheredBytesMax = std::int64_t{512} << 20;
constexpr std::size_t kMessagesMin = 2;  // a latency and a slope
// Of the reads out of shared memory: what caches hold.
constexpr std::array<std::int64_t, 3> kSharedBytes = {16 << 10, 64 << 10, 256 << 10};
constexpr std::int64_t kReducedBytes = 64 << 10;
constexpr int kReductions = 16;  // between two barriers, which would weigh on one
constexpr double kBudget_s = 0.02;

// The whole of all ranks' work over its bytes: a rank that waits for a core counts, too.
struct Reduction {
  double pair_s_per_byte = 0;        // median
  double least_many_s_per_byte = 0;  // one pass over as many sources as there are ranks
};

Reduction measure_reduction(comm::Communicator& communicator, DType dtype, ReduceOp op) {
  const auto world = static_cast<std::size_t>(communicator.world());
  std::vector<std::vector<std::byte>> sources(world, std::vector<std::byte>(kReducedBytes));
  std::vector<const void*> pointers;
  for (const std::vector<std::byte>& source : sources) pointers.push_back(source.data());
  std::vector<std::byte> target(kReducedBytes);
  const std::int64_t count = kReducedBytes / static_cast<std::int64_t>(size_of(dtype));
  const std::array<std::function<void()>, 2> work = {
      [&] {
        for (int i = 0; i < kReductions; ++i)
          kernels::reduce(op, dtype, target.data(), target.data(), pointers[0], count);
        communicator.barrier();
      },
      [&] { kernels::reduce_many(op, dtype, target.data(), pointers, count); }};
  const std::vector<Times> times = time_candidates(communicator, work, {.budget_s = kBudget_s});
  return {times[0].median_s / static_cast<double>(kReducedBytes * kReductions),
          times[1].min_s / static_cast<double>(kReducedBytes * (communicator.world() - 1))};
}

bool shares_memory(const comm::Communicator& communicator) {
  const std::string_view name = communicator.transport_name();
  return name == "shm" || name == "local";
}

// Calls that fit a cache line, and reads out of memory that all ranks map.
void measure_fastest(comm::Communicator& communicator, LinkModel::Least& least) {
  const int world = communicator.world();
  const comm::Symmetric memory =
      communicator.allocate(static_cast<std::size_t>(kSharedBytes.back() * world));
  std::array<float, 2> value = {};
  std::vector<std::function<void()>> work = {[&] { communicator.barrier(); },
                                             [&] {
                                               communicator.all_reduce(value.data(), value.data(),
                                                                       value.size(), DType::kF32,
                                                                       ReduceOp::kMax);
                                             }};
  const std::size_t small = work.size();
  for (const std::int64_t bytes : kSharedBytes) {
    work.emplace_back([&, bytes] {
      // In place: nothing is copied but what comes from peers.
      communicator.all_gather(memory.get() + communicator.rank() * bytes, memory.get(), bytes,
                              DType::kU8, {.algorithm = "direct"});
    });
  }
  const std::vector<Times> times = time_candidates(communicator, work, {.budget_s = kBudget_s});
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (i < small) {
      least.alpha_s = std::min(least.alpha_s, times[i].min_s);
    } else {
      const auto bytes = static_cast<double>(kSharedBytes[i - small] * (world - 1));
      least.beta_s_per_byte = std::min(least.beta_s_per_byte, times[i].min_s / bytes);
    }
  }
}

}  // namespace

LinkModel LinkModel::uniform(double alpha_s, double beta_s_per_byte, double gamma_s_per_byte) {
  constexpr double kFar = 1e15;  // bytes; the latency has no weight there
  const double far_s = alpha_s + kFar * beta_s_per_byte;
  return {{{0, alpha_s}, {kFar, far_s}},
          gamma_s_per_byte,
          {.alpha_s = alpha_s,
           .beta_s_per_byte = beta_s_per_byte,
           .gamma_s_per_byte = gamma_s_per_byte}};
}

double LinkModel::message_s(double bytes) const {
  if (messages.empty()) return 0;
  if (bytes <= messages.front().bytes) return messages.front().seconds;
  std::size_t above = 1;
  while (above + 1 < messages.size() && messages[above].bytes < bytes) ++above;
  const Point& left = messages[above - 1];
  const Point& right = messages[above];
  return left.seconds +
         (bytes - left.bytes) * (right.seconds - left.seconds) / (right.bytes - left.bytes);
}

std::span<const std::int64_t> message_sizes(int world) {
  std::size_t count = kMessagesMin;
  while (count < kMessageBytes.size() &&
         kMessageBytes[count] * world * (world - 1) <= kGatheredBytesMax)
    ++count;
  return std::span(kMessageBytes).first(count);
}

LinkModel measure_links(comm::Communicator& communicator, DType dtype, ReduceOp op) {
  LinkModel model;
  const int world = communicator.world();
  if (world == 1) return model;
  const std::span<const std::int64_t> sizes = message_sizes(world);
  const std::int64_t largest = sizes.back();
  std::vector<std::byte> source(static_cast<std::size_t>(largest), std::byte{1});
  std::vector<std::byte> target(static_cast<std::size_t>(largest * world), std::byte{2});
  std::vector<std::function<void()>> work;
  for (const std::int64_t bytes : sizes) {
    work.emplace_back([&, bytes] {
      communicator.all_gather(source.data(), target.data(), bytes, DType::kU8,
                              {.algorithm = "ring"});
    });
  }
  const std::vector<Times> times = time_candidates(communicator, work, {.budget_s = kBudget_s});
  double slowest_s = 0;
  model.least = {.alpha_s = std::numeric_limits<double>::infinity(),
                 .beta_s_per_byte = std::numeric_limits<double>::infinity()};
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto bytes = static_cast<double>(sizes[i]);
    slowest_s = std::max(slowest_s, times[i].median_s / (world - 1));
    model.messages.push_back({bytes, slowest_s});
    const double least_s = times[i].min_s / (world - 1);
    model.least.alpha_s = std::min(model.least.alpha_s, least_s);
    model.least.beta_s_per_byte = std::min(model.least.beta_s_per_byte, least_s / bytes);
  }
  model.least.one_port = !shares_memory(communicator);
  if (!model.least.one_port) measure_fastest(communicator, model.least);
  const Reduction reduction = measure_reduction(communicator, dtype, op);
  model.gamma_s_per_byte = reduction.pair_s_per_byte;
  model.least.gamma_s_per_byte =
      std::min(reduction.least_many_s_per_byte, reduction.pair_s_per_byte);
  return model;
}

}  // namespace sinew::bench
