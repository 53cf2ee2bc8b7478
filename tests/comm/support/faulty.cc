#include "tests/comm/support/faulty.h"

#include <algorithm>
#include <utility>

namespace sinew::comm::testing {

namespace {

// One message in four arrives late, by up to this many looks at its lane.
constexpr std::uint32_t kMostPolls = 40;
// Pieces into which messages are cut: small enough that every slot and every exposed message is.
constexpr std::uint32_t kMostLines = 64;
constexpr std::int64_t kLine = 64;

}  // namespace

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, const Faults& faults)
    : inner_(std::move(inner)), faults_(faults), philox_(faults.seed, 0) {}

int& FaultyTransport::delay_of(int peer, int lane) {
  const auto index = static_cast<std::size_t>(peer) * kLanes + static_cast<std::size_t>(lane);
  if (delays_.size() <= index) delays_.resize(index + 1, -1);
  return delays_[index];
}

Sent FaultyTransport::send(int peer, int lane, std::uint64_t flag, const std::byte* data,
                           std::int64_t size_bytes, Source source) {
  if (draw() % 3 == 0) return {};
  const std::uint32_t what = draw();
  if (what % 2 == 0) source = Source::kCopied;
  if (what % 5 != 0 && size_bytes > kLine)
    size_bytes = std::min(size_bytes, kLine * (1 + (what >> 8) % kMostLines));
  const bool now = faults_.kind != Faults::Kind::kNone && messages_ == faults_.at_message;
  if (now && faults_.kind == Faults::Kind::kLose) {
    ++messages_;
    return {.size_bytes = size_bytes, .sequence = 0, .exposed = false};
  }
  const bool garble = now && faults_.kind == Faults::Kind::kGarble;
  const Sent sent =
      inner_->send(peer, lane, garble ? flag ^ 0x4000'0000U : flag, data, size_bytes, source);
  if (sent.size_bytes != Sent::kNoCredit) ++messages_;
  return sent;
}

bool FaultyTransport::released(int peer, int lane, std::uint64_t sequence) {
  return draw() % 3 != 0 && inner_->released(peer, lane, sequence);
}

// A message that was once seen stays visible until its release, as the contract has it.
bool FaultyTransport::peek(int peer, int lane, Message* message) {
  if (!inner_->peek(peer, lane, message)) return false;
  int& delay = delay_of(peer, lane);
  if (delay < 0) {
    const std::uint32_t drawn = draw();
    delay = drawn % 4 == 0 ? static_cast<int>((drawn >> 8) % kMostPolls) : 0;
  }
  if (delay == 0) return true;
  --delay;
  return false;
}

void FaultyTransport::release(int peer, int lane) {
  delay_of(peer, lane) = -1;
  inner_->release(peer, lane);
}

std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>, int)> with_faults(
    const Faults& faults) {
  return [faults](std::unique_ptr<Transport> inner, int rank) -> std::unique_ptr<Transport> {
    Faults own = faults;
    own.seed += 1000 * static_cast<std::uint64_t>(rank);
    return std::make_unique<FaultyTransport>(std::move(inner), own);
  };
}

}  // namespace sinew::comm::testing
