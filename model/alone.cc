#include "model/alone.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "model/parallel.h"

namespace sinew::model {

namespace {

void exchange(comm::Communicator& group, const std::vector<float>& sent,
              std::vector<float>& received, std::int64_t count) {
  const int world = group.world();
  comm::Request receive =
      group.start_recv(received.data(), count, DType::kF32, (group.rank() + world - 1) % world);
  comm::Request send =
      group.start_send(sent.data(), count, DType::kF32, (group.rank() + 1) % world);
  send.wait();
  receive.wait();
}

}  // namespace

double time_alone(comm::Communicator& group, sched::Pattern pattern, std::int64_t payload_bytes) {
  const int world = group.world();
  // Whole elements and equal parts, the same on all ranks.
  std::int64_t part = payload_bytes / static_cast<std::int64_t>(sizeof(float)) / world;
  max_over(&group, &part, 1, DType::kI64);
  const std::int64_t count = part * world;
  std::vector<float> array(static_cast<std::size_t>(count));
  std::vector<float> other(static_cast<std::size_t>(count));
  constexpr int kTimes = 4;
  double best_s = 1e9;
  for (int i = 0; i < kTimes; ++i) {
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    switch (pattern) {
      case sched::Pattern::kAllReduce:
        sum_over(&group, array.data(), count);
        break;
      case sched::Pattern::kReduceScatter:
        scatter_sum_over(&group, array.data(), other.data(), part);
        break;
      case sched::Pattern::kAllGather:
        gather_over(&group, other.data(), array.data(), part);
        break;
      case sched::Pattern::kMessage:
        exchange(group, array, other, count);
        break;
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best_s = std::min(best_s, seconds);
  }
  return best_s;
}

}  // namespace sinew::model
