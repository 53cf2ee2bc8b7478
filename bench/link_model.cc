#include "bench/link_model.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "bench/repeat.h"
#include "kernels/reduce.h"
#include "sched/base/check.h"

namespace sinew::bench {
namespace {

// From a message within one cache line to one beyond the caches of a core.
constexpr std::array<std::int64_t, 6> kMessageBytes = {8,         1 << 10, 16 << 10,
                                                       128 << 10, 1 << 20, 4 << 20};
constexpr std::int64_t kReducedBytes = 64 << 10;
constexpr double kBudget_s = 0.02;

double measure_reduction(comm::Communicator& communicator, DType dtype, ReduceOp op) {
  std::vector<std::byte> source(kReducedBytes, std::byte{1});
  std::vector<std::byte> target(kReducedBytes, std::byte{1});
  const std::int64_t count = kReducedBytes / static_cast<std::int64_t>(size_of(dtype));
  const std::function<void()> reduce = [&] {
    kernels::reduce(op, dtype, target.data(), target.data(), source.data(), count);
  };
  const Times times = time_candidates(communicator, {&reduce, 1}, {.budget_s = kBudget_s}).front();
  return times.median_s / static_cast<double>(kReducedBytes);
}

}  // namespace

LinkModel LinkModel::uniform(double alpha_s, double beta_s_per_byte, double gamma_s_per_byte) {
  constexpr double kFar = 1e15;  // bytes; the latency has no weight there
  const double far_s = alpha_s + kFar * beta_s_per_byte;
  return {{{0, alpha_s, alpha_s}, {kFar, far_s, far_s}}, gamma_s_per_byte};
}

double LinkModel::least_alpha_s() const {
  double least = messages.empty() ? 0 : messages.front().least_s;
  for (const Point& point : messages) least = std::min(least, point.least_s);
  return least;
}

double LinkModel::least_beta_s_per_byte() const {
  double least = messages.empty() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < messages.size(); ++i) {
    least = std::min(least, messages[i].least_s / messages[i].bytes);
  }
  return least;
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

LinkModel measure_links(comm::Communicator& communicator, DType dtype, ReduceOp op) {
  LinkModel model;
  const int world = communicator.world();
  if (world == 1) return model;
  const std::int64_t largest = kMessageBytes.back();
  std::vector<std::byte> source(static_cast<std::size_t>(largest), std::byte{1});
  std::vector<std::byte> target(static_cast<std::size_t>(largest * world), std::byte{2});
  std::vector<std::function<void()>> work;
  for (const std::int64_t bytes : kMessageBytes) {
    work.emplace_back([&, bytes] {
      communicator.all_gather(source.data(), target.data(), bytes, DType::kU8,
                              {.algorithm = "ring"});
    });
  }
  const std::vector<Times> times = time_candidates(communicator, work, {.budget_s = kBudget_s});
  double slowest_s = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    slowest_s = std::max(slowest_s, times[i].median_s / (world - 1));
    model.messages.push_back(
        {static_cast<double>(kMessageBytes[i]), slowest_s, times[i].min_s / (world - 1)});
  }
  model.gamma_s_per_byte = measure_reduction(communicator, dtype, op);
  return model;
}

}  // namespace sinew::bench
