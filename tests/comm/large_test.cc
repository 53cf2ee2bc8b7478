// Where messages lie in vectors of more than 2^31 elements: no memory is touched, the transport
// only notes what it is asked to send.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/executor.h"
#include "comm/plan.h"
#include "sched/collective/registry.h"

namespace sinew::comm::testing {
namespace {

struct Noted {
  int peer;
  std::uintptr_t address;
  std::int64_t size;
};

class NotingTransport final : public Transport {
 public:
  [[nodiscard]] const Traits& traits() const override { return traits_; }
  [[nodiscard]] Sent send(int peer, int, std::uint64_t, const std::byte* data,
                          std::int64_t size_bytes, Source) override {
    noted.push_back({peer, reinterpret_cast<std::uintptr_t>(data), size_bytes});
    return {.size_bytes = size_bytes, .sequence = noted.size()};
  }
  [[nodiscard]] bool released(int, int, std::uint64_t) override { return true; }
  [[nodiscard]] bool peek(int, int, Message*) override { return false; }
  [[nodiscard]] bool read(int, const Message&, std::int64_t, std::byte*, std::int64_t) override {
    return false;
  }
  void release(int, int) override {}
  std::vector<Noted> noted;

 private:
  Traits traits_{.name = "noting", .credits = 4, .slot_bytes = 4096};
};

// The first element of a chunk in the logical vector, as contract.h has it.
std::int64_t first_of(const sched::Contract& contract, std::int64_t count, std::int64_t chunk) {
  const std::int64_t per_block = contract.chunks_per_block;
  const std::int64_t within = chunk % per_block;
  return chunk / per_block * count + within * (count / per_block) +
         std::min(within, count % per_block);
}

TEST(Large, MessagesLieWhereTheirChunksAreBeyondTwoToThe33) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 33) + 5;
  constexpr std::uintptr_t kBase = std::uintptr_t{1} << 44;
  int sends = 0;
  std::int64_t farthest = 0;
  for (const sched::Algorithm& row : sched::algorithms()) {
    for (const int world : {3, 4, 8}) {
      const int root = sched::Contract{.op = row.op}.rooted() ? world - 1 : 0;
      if (row.op == sched::Collective::kBarrier ||
          !row.refuse({.world = world, .root = root}).empty())
        continue;
      const sched::Schedule schedule = sched::generate(row, {.world = world, .root = root});
      for (int rank = 0; rank < world; ++rank) {
        const Plan plan = compile_whole(schedule, rank, true);
        // Those with places of their own would have to allocate them.
        if (!plan.scratch_chunk.empty()) continue;
        const sched::Contract& contract = plan.contract;
        // In place: this rank's part of the larger buffer is the smaller one.
        const std::int64_t own = contract.blocks() == 1 ? 0 : rank * kCount * 4;
        auto* const whole = reinterpret_cast<std::byte*>(kBase);
        const bool gathers =
            row.op == sched::Collective::kAllGather || row.op == sched::Collective::kGather;
        const bool spreads =
            row.op == sched::Collective::kReduceScatter || row.op == sched::Collective::kScatter;
        NotingTransport transport;
        Execution execution(transport);
        execution.start({.plan = &plan,
                         .input = whole + (gathers ? own : 0),
                         .output = whole + (spreads ? own : 0),
                         .count = kCount,
                         .dtype = DType::kF32});
        static_cast<void>(execution.progress());
        for (const Noted& noted : transport.noted) {
          ++sends;
          const bool known =
              std::any_of(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& step) {
                if (step.verb != PlanVerb::kSend || step.peer != noted.peer) return false;
                const std::int64_t first = first_of(contract, kCount, step.source.index());
                farthest = std::max(farthest, first);
                if (noted.address != kBase + 4 * static_cast<std::uintptr_t>(first)) return false;
                // So many chunks of the step as may be sent at once.
                for (int chunk = 1; chunk <= step.chunks; ++chunk) {
                  const std::int64_t end = first_of(contract, kCount, step.source.index() + chunk);
                  if (noted.size == 4 * (end - first)) return true;
                }
                return false;
              });
          EXPECT_TRUE(known) << sched::name_of(row.op) << " by " << row.name << ", world " << world
                             << ", rank " << rank << ": " << noted.size << " bytes at "
                             << noted.address - kBase;
        }
      }
    }
  }
  EXPECT_GT(sends, 500);
  EXPECT_GT(farthest, 7 * kCount - 1);
}

}  // namespace
}  // namespace sinew::comm::testing
