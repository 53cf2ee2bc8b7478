#include "bench/link_model.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "bench/repeat.h"
#include "kernels/reduce.h"

namespace sinew::bench {
namespace {

// Beyond the second cache of one core, below the last one: messages of collectives mostly live
// there.
constexpr std::int64_t kSmallBytes = std::int64_t{256} << 10;
constexpr std::int64_t kLargeBytes = std::int64_t{2} << 20;

void shift_right(comm::Communicator& communicator, const std::byte* source, std::byte* target,
                 std::int64_t bytes) {
  const int world = communicator.world();
  const int right = (communicator.rank() + 1) % world;
  const int left = (communicator.rank() + world - 1) % world;
  comm::Request sent = communicator.start_send(source, bytes, DType::kU8, right);
  communicator.recv(target, bytes, DType::kU8, left);
  sent.wait();
}

}  // namespace

LinkModel measure_links(comm::Communicator& communicator, DType dtype, ReduceOp op) {
  std::vector<std::byte> source(kLargeBytes, std::byte{1});
  std::vector<std::byte> target(kLargeBytes, std::byte{1});
  const auto shift = [&](std::int64_t bytes) -> std::function<void()> {
    return [&, bytes] { shift_right(communicator, source.data(), target.data(), bytes); };
  };
  const std::int64_t element = static_cast<std::int64_t>(size_of(dtype));
  const std::function<void()> reduce = [&] {
    kernels::reduce(op, dtype, target.data(), target.data(), source.data(), kLargeBytes / element);
  };
  const std::vector<std::function<void()>> work = {shift(element), shift(kSmallBytes),
                                                   shift(kLargeBytes), reduce};
  const std::vector<Times> times = time_candidates(communicator, work, {.budget_s = 0.05});
  LinkModel model;
  model.alpha_s = times[0].median_s;
  model.beta_s_per_byte = std::max(0.0, times[2].median_s - times[1].median_s) /
                          static_cast<double>(kLargeBytes - kSmallBytes);
  model.gamma_s_per_byte = times[3].median_s / static_cast<double>(kLargeBytes);
  return model;
}

}  // namespace sinew::bench
