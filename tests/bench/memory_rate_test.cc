// What bench/memory_rate.h counts, beside what the communicator counted.
#include "bench/memory_rate.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/communicator.h"
#include "sched/collective/registry.h"

namespace sinew::bench {
namespace {

// What is fetched is what the messages of the direct algorithms carry; what is put is never more,
// since one put serves all that read it.
TEST(MemoryRate, WhatIsHandedOverIsWhatTheMessagesCarry) {
  for (int world = 1; world <= 5; ++world) {
    for (int i = 0; i < sched::kCollectiveCount; ++i) {
      const auto op = static_cast<sched::Collective>(i);
      std::int64_t sent = 0;
      const CollectiveShape shape{
          .op = op, .count = op == sched::Collective::kBarrier ? 0 : 1200, .world = world};
      comm::Communicator::run_threads(world, {}, [&](comm::Communicator& communicator) {
        CollectiveShape own = shape;
        own.rank = communicator.rank();
        CollectiveCase one(communicator, own, CollectiveCase::Buffers::kPlain);
        one.run(op == sched::Collective::kAllReduce ? "two_shot" : "direct");
        std::int64_t all = communicator.counters().collective[i].sent_bytes;
        communicator.all_reduce(&all, &all, 1, DType::kI64, ReduceOp::kSum);
        if (communicator.rank() == 0) sent = all;
      });
      const HandedOver handed = handed_over_bytes(shape);
      EXPECT_EQ(handed.fetched_bytes, sent) << sched::name_of(op) << " " << world;
      EXPECT_LE(handed.put_bytes, handed.fetched_bytes) << sched::name_of(op) << " " << world;
      EXPECT_EQ(handed.put_bytes == 0, handed.fetched_bytes == 0) << sched::name_of(op);
    }
  }
}

}  // namespace
}  // namespace sinew::bench
