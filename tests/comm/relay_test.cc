// What a rank passes on while it still arrives: over a transport where a message is dear it leaves
// in whole blocks, however small the pieces are that come in. What arrives after that has its place
// before it comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/executor.h"
#include "comm/plan.h"
#include "sched/collective/registry.h"

namespace sinew::comm::testing {
namespace {

constexpr std::int64_t kPieceBytes = 64;

// Each look finds at most one piece more; what is sent is noted and gone at once. One peer's
// message is there from the begin, and whole.
class TricklingTransport final : public Transport {
 public:
  TricklingTransport(std::int64_t worthwhile_bytes, std::int64_t most_bytes)
      : worthwhile_bytes_(worthwhile_bytes), most_bytes_(most_bytes) {}
  [[nodiscard]] const Traits& traits() const override { return traits_; }
  [[nodiscard]] Sent send(int, int, std::uint64_t flag, const std::byte*, std::int64_t size_bytes,
                          Source) override {
    flag_ = flag;
    sizes.push_back(std::min(size_bytes, most_bytes_));
    return {.size_bytes = sizes.back(), .sequence = sizes.size()};
  }
  [[nodiscard]] bool released(int, int, std::uint64_t) override { return true; }
  [[nodiscard]] std::int64_t worthwhile_bytes(int, int) const override { return worthwhile_bytes_; }
  [[nodiscard]] bool peek(int peer, int, Message* message) override {
    if (peer == whole_peer) {
      *message = {.flag = flag_, .size_bytes = whole_bytes, .data = whole_.data()};
      return whole_bytes > 0;
    }
    if (left_bytes == 0 || !due_) return false;
    *message = {.flag = flag_, .size_bytes = std::min(kPieceBytes, left_bytes), .data = piece_};
    return true;
  }
  [[nodiscard]] bool read(int, const Message&, std::int64_t, std::byte*, std::int64_t) override {
    return false;
  }
  void release(int peer, int) override {
    if (peer == whole_peer) {
      whole_bytes = 0;
      return;
    }
    left_bytes -= std::min(kPieceBytes, left_bytes);
    due_ = false;
  }
  void next(std::uint64_t flag) {
    flag_ = flag;
    due_ = true;
  }

  std::int64_t left_bytes = 0;
  int whole_peer = -1;
  std::int64_t whole_bytes = 0;
  std::vector<std::int64_t> sizes;

 private:
  std::int64_t worthwhile_bytes_;
  std::int64_t most_bytes_;
  std::uint64_t flag_ = 0;
  bool due_ = false;
  std::byte piece_[kPieceBytes] = {};
  std::vector<std::byte> whole_ = std::vector<std::byte>(4 * kPieceBytes);
  Traits traits_{.name = "trickling", .credits = 8, .slot_bytes = 4096};
};

// Nothing arrives; what is expected is noted.
class ExpectantTransport final : public Transport {
 public:
  [[nodiscard]] const Traits& traits() const override { return traits_; }
  [[nodiscard]] Sent send(int, int, std::uint64_t, const std::byte*, std::int64_t size_bytes,
                          Source) override {
    return {.size_bytes = size_bytes, .sequence = ++sequence_};
  }
  [[nodiscard]] bool released(int, int, std::uint64_t) override { return true; }
  [[nodiscard]] bool peek(int, int, Message*) override { return false; }
  [[nodiscard]] bool read(int, const Message&, std::int64_t, std::byte*, std::int64_t) override {
    return false;
  }
  void release(int, int) override {}
  void expect(int, int, const Wanted& first, const Wanted& second) override {
    now = first;
    then = second;
  }
  Wanted now;
  Wanted then;

 private:
  std::uint64_t sequence_ = 0;
  Traits traits_{.name = "expectant", .credits = 8, .slot_bytes = 4096, .lands = true};
};

// A plan on bytes, in place.
Work work_on(const Plan& plan, std::vector<std::byte>& buffer, std::int64_t count,
             std::uint64_t flag) {
  return {.plan = &plan,
          .input = buffer.data(),
          .output = buffer.data(),
          .count = count,
          .dtype = DType::kU8,
          .flag = flag};
}

// What rank 0 of three expects at the begin of a ring.
ExpectantTransport expected_of(sched::Collective op, std::vector<std::byte>& buffer) {
  const sched::Schedule schedule =
      sched::generate(sched::find_algorithm(op, "ring"), {.world = 3, .root = 0});
  const Plan plan = compile_whole(schedule, 0, true);
  const auto bytes = static_cast<std::int64_t>(buffer.size());
  ExpectantTransport transport;
  Execution execution(transport);
  execution.start(
      work_on(plan, buffer, op == sched::Collective::kAllGather ? bytes / 3 : bytes, 1));
  static_cast<void>(execution.progress());
  return transport;
}

// The sizes in which the middle rank of a chain passes `bytes` on.
std::vector<std::int64_t> relayed(std::int64_t bytes, std::int64_t worthwhile_bytes,
                                  std::int64_t most_bytes) {
  const sched::Schedule schedule = sched::generate(
      sched::find_algorithm(sched::Collective::kBroadcast, "chain"), {.world = 3, .root = 0});
  const Plan plan = compile_whole(schedule, 1, true);
  std::vector<std::byte> buffer(static_cast<std::size_t>(bytes));
  TricklingTransport transport(worthwhile_bytes, most_bytes);
  transport.left_bytes = bytes;
  constexpr std::uint64_t kFlag = 7;
  Execution execution(transport);
  execution.start(work_on(plan, buffer, bytes, kFlag));
  for (std::int64_t look = 0; look < 2 * bytes && execution.running(); ++look) {
    transport.next(kFlag);
    static_cast<void>(execution.progress());
  }
  EXPECT_FALSE(execution.running());
  return transport.sizes;
}

TEST(Relay, WhatArrivesInPiecesLeavesInBlocksThatAreWorthAMessage) {
  EXPECT_EQ(relayed(1024, 256, 256), (std::vector<std::int64_t>{256, 256, 256, 256}));
  EXPECT_EQ(relayed(900, 256, 256), (std::vector<std::int64_t>{256, 256, 256, 132}));
  EXPECT_EQ(relayed(192, 256, 256), (std::vector<std::int64_t>{192}));
  EXPECT_EQ(relayed(640, 256, 128), (std::vector<std::int64_t>{128, 128, 128, 128, 128}));
}

TEST(Relay, WhereAMessageCostsNothingEachPieceLeavesAtOnce) {
  EXPECT_EQ(relayed(256, 0, 4096), (std::vector<std::int64_t>{64, 64, 64, 64}));
}

TEST(Relay, WhatComesNextInALaneIsExpectedBeforeWhatComesFirstHasCome) {
  constexpr std::int64_t kChunkBytes = 1000;
  std::vector<std::byte> buffer(3 * kChunkBytes);
  // Rank 0 of a ring receives the chunks of ranks 2 and 1, and nobody else touches their places.
  const ExpectantTransport gathers = expected_of(sched::Collective::kAllGather, buffer);
  EXPECT_EQ(gathers.now.target, buffer.data() + 2 * kChunkBytes);
  EXPECT_EQ(gathers.then.target, buffer.data() + kChunkBytes);
  EXPECT_EQ(gathers.then.ready_bytes, kChunkBytes);
  EXPECT_EQ(gathers.then.total_bytes, kChunkBytes);
  // Here it reduces both, in the places where the transport holds them.
  const ExpectantTransport reduces = expected_of(sched::Collective::kAllReduce, buffer);
  EXPECT_EQ(reduces.now.target, nullptr);
  EXPECT_EQ(reduces.then.target, nullptr);
  EXPECT_EQ(reduces.then.ready_bytes, kChunkBytes);
}

// Rank 0 of four: rank 2's message is whole, rank 1's comes in pieces, and both are added to one
// place.
TEST(Relay, AMessageThatWaitsForEarlierBytesIsNoProgress) {
  constexpr std::int64_t kBytes = 4 * kPieceBytes;
  const sched::Schedule schedule = sched::generate(
      sched::find_algorithm(sched::Collective::kAllReduce, "recursive_doubling"), {.world = 4});
  const Plan plan = compile_whole(schedule, 0, true);
  std::vector<std::byte> buffer(kBytes);
  TricklingTransport transport(0, kBytes);
  transport.left_bytes = kBytes;
  transport.whole_peer = 2;
  transport.whole_bytes = kBytes;
  Execution execution(transport);
  execution.start(work_on(plan, buffer, kBytes, 1));
  static_cast<void>(execution.progress());  // sends
  for (std::int64_t pieces = kBytes / kPieceBytes; pieces > 0; --pieces) {
    EXPECT_EQ(execution.progress(), Progress::kIdle) << pieces << " pieces to come";
    transport.next(1);
    EXPECT_NE(execution.progress(), Progress::kIdle);
  }
  EXPECT_FALSE(execution.running());
}

}  // namespace
}  // namespace sinew::comm::testing
