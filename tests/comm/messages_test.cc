// Point-to-point receives and what the transport is told about them: where the oldest of a queue
// wants its bytes, and where the next one does.
#include "comm/messages.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <vector>

namespace sinew::comm::testing {
namespace {

constexpr int kPeer = 1;
constexpr std::int64_t kBytes = 64;

// Hands out what a test put into a lane, and notes what is expected of each.
class ScriptedTransport final : public Transport {
 public:
  struct Expected {
    Wanted now;
    Wanted then;
    int times = 0;
  };
  [[nodiscard]] const Traits& traits() const override { return traits_; }
  [[nodiscard]] Sent send(int, int, std::uint64_t, const std::byte*, std::int64_t size_bytes,
                          Source) override {
    return {.size_bytes = size_bytes, .sequence = ++sequence_};
  }
  [[nodiscard]] bool released(int, int, std::uint64_t) override { return true; }
  [[nodiscard]] bool peek(int, int lane, Message* message) override {
    if (arrived[lane].empty()) return false;
    *message = arrived[lane].front();
    return true;
  }
  [[nodiscard]] bool read(int, const Message&, std::int64_t, std::byte*, std::int64_t) override {
    return false;
  }
  void release(int, int lane) override { arrived[lane].pop_front(); }
  void expect(int, int lane, const Wanted& now, const Wanted& then) override {
    expected[lane] = {now, then, expected[lane].times + 1};
  }

  std::map<int, std::deque<Message>> arrived;
  std::map<int, Expected> expected;

 private:
  std::uint64_t sequence_ = 0;
  Traits traits_{.name = "scripted", .credits = 8, .slot_bytes = 4096, .lands = true};
};

class MessagesTest : public ::testing::Test {
 protected:
  Transfer& receive(std::vector<std::byte>& target, int lane = kFirstTagLane) {
    return messages_.start({.direction = MessageAsk::Direction::kReceive,
                            .call = {.count = std::ssize(target)},
                            .peer = kPeer,
                            .lane = lane,
                            .target = target.data(),
                            .size = std::ssize(target)});
  }
  void arrive(const Transfer& transfer) {
    transport_.arrived[transfer.lane].push_back(
        {.flag = transfer.flag, .size_bytes = transfer.size, .data = bytes_.data()});
  }
  void progress() { ASSERT_NE(messages_.progress(), Progress::kFailed); }
  [[nodiscard]] const ScriptedTransport::Expected& expected(int lane = kFirstTagLane) {
    return transport_.expected[lane];
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(kBytes, std::byte{7});
  std::vector<std::byte> first_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> second_ = std::vector<std::byte>(kBytes / 2);
  std::vector<std::byte> third_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> empty_;
  ScriptedTransport transport_;
  Messages messages_{transport_, 0, 2};
};

TEST_F(MessagesTest, TheNextReceiveOfAQueueIsWantedBeforeTheOldestIsComplete) {
  Transfer& first = receive(first_);
  progress();
  EXPECT_EQ(expected().now.target, first_.data());
  EXPECT_EQ(expected().now.ready_bytes, kBytes);
  EXPECT_EQ(expected().then.target, nullptr);
  receive(second_);
  receive(third_);
  progress();
  EXPECT_EQ(expected().now.target, first_.data());
  EXPECT_EQ(expected().then.target, second_.data());
  EXPECT_EQ(expected().then.ready_bytes, kBytes / 2);
  EXPECT_EQ(expected().then.total_bytes, kBytes / 2);
  arrive(first);
  progress();
  EXPECT_TRUE(first.complete);
  EXPECT_EQ(first_, bytes_);
  EXPECT_EQ(expected().now.target, second_.data());
  EXPECT_EQ(expected().then.target, third_.data());
}

TEST_F(MessagesTest, QueuesOfOtherTagsAreExpectedApart) {
  receive(first_);
  receive(second_, kFirstTagLane + 1);
  progress();
  EXPECT_EQ(expected().now.target, first_.data());
  EXPECT_EQ(expected().then.target, nullptr);
  EXPECT_EQ(expected(kFirstTagLane + 1).now.target, second_.data());
}

TEST_F(MessagesTest, AReceiveBehindAnEmptyOneIsWantedOnceThatIsComplete) {
  Transfer& empty = receive(empty_);
  receive(first_);
  progress();
  EXPECT_EQ(expected().times, 0);
  arrive(empty);
  progress();
  EXPECT_TRUE(empty.complete);
  EXPECT_EQ(expected().now.target, first_.data());
}

TEST_F(MessagesTest, APlaceThatServesALaterReceiveIsWantedAnew) {
  for (std::vector<std::byte>* target : {&first_, &third_}) {
    Transfer& transfer = receive(*target);
    progress();
    EXPECT_EQ(expected().now.target, target->data());
    arrive(transfer);
    progress();
    EXPECT_TRUE(transfer.complete);
    messages_.retire(transfer);
  }
}

TEST_F(MessagesTest, TransfersRetireInAnyOrder) {
  Transfer& first = receive(first_);
  Transfer& second = receive(second_, kFirstTagLane + 1);
  Transfer& third = receive(third_);
  arrive(second);
  progress();
  EXPECT_FALSE(first.complete);
  ASSERT_TRUE(second.complete);
  messages_.retire(second);
  arrive(first);
  arrive(third);
  progress();
  ASSERT_TRUE(first.complete);
  ASSERT_TRUE(third.complete);
  messages_.retire(third);
  messages_.retire(first);
  EXPECT_TRUE(messages_.idle());
}

TEST_F(MessagesTest, LooksThatFindNothingTellTheTransportNothingNew) {
  receive(first_);
  receive(second_);
  for (int look = 0; look < 100; ++look) progress();
  EXPECT_EQ(expected().times, 1);
}

}  // namespace
}  // namespace sinew::comm::testing
