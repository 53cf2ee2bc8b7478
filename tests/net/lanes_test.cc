// Lanes over a network without a network: where a block goes that a wire copies on arrival.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/transport/net.h"

namespace sinew::comm::testing {
namespace {

constexpr int kPeer = 1;
constexpr int kLane = kFirstTagLane;
constexpr std::int64_t kBytes = 64;

// Carries nothing: a test says what arrives, as its place would.
class ScriptedWire final : public Wire {
 public:
  explicit ScriptedWire(const WirePlace& place) : sink(place.sink) { newest = this; }
  [[nodiscard]] Exposes exposes() const override { return Exposes::kWhole; }
  [[nodiscard]] Posted post(const Post&) override { return Posted::kSent; }
  void credit(int, int, int) override {}
  bool land(int, int, int, std::byte*, std::int64_t) override {
    ++landings;
    return true;
  }
  void progress() override {}
  [[nodiscard]] std::string describe() const override { return "scripted"; }
  void stop() override {}

  WireSink* sink;
  int landings = 0;
  inline static ScriptedWire* newest = nullptr;
};

const WireKind kScripted = {"scripted", [](std::string_view) { return std::string(); },
                            [](const WirePlace& place) -> std::unique_ptr<Wire> {
                              return std::make_unique<ScriptedWire>(place);
                            }};

class NetLanes : public ::testing::Test {
 protected:
  // The block's bytes are all `value`. Returns where the lane then shows them.
  const std::byte* arrive(int place, std::byte value) {
    const std::vector<std::byte> block(kBytes, value);
    wire_.sink->brought(kPeer, kLane, place, 1, block, 0);
    return oldest();
  }
  const std::byte* oldest() {
    Message message;
    EXPECT_TRUE(net_.peek(kPeer, kLane, &message));
    return message.data;
  }
  void expect(std::vector<std::byte>& now, std::vector<std::byte>& then) {
    net_.expect(kPeer, kLane, {now.data(), std::ssize(now), std::ssize(now)},
                {then.data(), std::ssize(then), std::ssize(then)});
  }

  std::vector<std::unique_ptr<Bootstrap>> bootstraps_ = thread_bootstraps(2, 1);
  NetTransport net_{{.bootstrap = bootstraps_[0].get(),
                     .kind = &kScripted,
                     .argument = {},
                     .reaches = {false, true}}};
  ScriptedWire& wire_ = *ScriptedWire::newest;
  std::vector<std::byte> first_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> second_ = std::vector<std::byte>(kBytes);
};

TEST_F(NetLanes, TheOldestBlockGoesWhereItIsWantedAndALaterOneToItsSlot) {
  expect(first_, second_);
  arrive(0, std::byte{1});
  arrive(1, std::byte{2});
  EXPECT_EQ(oldest(), first_.data());
  EXPECT_EQ(first_, std::vector<std::byte>(kBytes, std::byte{1}));
  net_.release(kPeer, kLane);
  EXPECT_NE(oldest(), second_.data());
  EXPECT_EQ(*oldest(), std::byte{2});
  EXPECT_EQ(second_, std::vector<std::byte>(kBytes));
  net_.release(kPeer, kLane);
}

TEST_F(NetLanes, ABlockLongerThanWhatIsWantedGoesToItsSlot) {
  std::vector<std::byte> shorter(kBytes - 1);
  expect(shorter, second_);
  EXPECT_NE(arrive(0, std::byte{1}), shorter.data());
  EXPECT_EQ(*oldest(), std::byte{1});
  EXPECT_EQ(shorter, std::vector<std::byte>(kBytes - 1));
}

TEST_F(NetLanes, APlaceThatWasFilledWhereItWasWantedShowsItsSlotTheNextTime) {
  expect(first_, second_);
  arrive(0, std::byte{1});
  net_.release(kPeer, kLane);
  net_.want_nothing();
  for (int place = 1; place <= NetLayout::kDepth; ++place) {
    wire_.sink->arrived(kPeer, kLane, place % NetLayout::kDepth, 1, kBytes);
    EXPECT_NE(oldest(), first_.data());
    net_.release(kPeer, kLane);
  }
}

TEST_F(NetLanes, NothingIsWrittenToMemoryThatACallerTookBack) {
  expect(first_, second_);
  net_.want_nothing();
  EXPECT_NE(arrive(0, std::byte{1}), first_.data());
  EXPECT_EQ(first_, std::vector<std::byte>(kBytes));
  wire_.sink->offered(kPeer, kLane, 1, 1, kBytes);
  EXPECT_EQ(wire_.landings, 0);
}

}  // namespace
}  // namespace sinew::comm::testing
