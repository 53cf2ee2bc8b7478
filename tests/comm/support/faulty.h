// A transport that misbehaves on purpose, for tests of what stands on transports. Everything it
// does follows from its seed and the order of its calls, so a failure replays.
//
// Within the contract of transport.h it delays arrivals, credits and releases by some polls, lets
// lanes overtake each other, cuts messages smaller, refuses to expose sources and says how many
// bytes are worth a message: none of that may change a result. Beyond the contract it can lose one
// message, garble its flag, or fail to read the sender's memory: that must become an error on every
// rank within the deadline.
//
// Never does: touch payload bytes. Threads: as the transport it wraps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/transport.h"
#include "sched/base/philox.h"

namespace sinew::comm::testing {

struct Faults {
  enum class Kind : std::uint8_t { kNone, kLose, kGarble, kUnread };
  std::uint64_t seed = 0;
  Kind kind = Kind::kNone;
  std::int64_t at_message = 0;  // of this rank's sends, or reads, from 0
  std::int64_t worthwhile_bytes = 0;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, const Faults& faults);

  [[nodiscard]] const Traits& traits() const override { return inner_->traits(); }
  [[nodiscard]] Sent send(int peer, int lane, std::uint64_t flag, const std::byte* data,
                          std::int64_t size_bytes, Source source) override;
  [[nodiscard]] bool released(int peer, int lane, std::uint64_t sequence) override;
  [[nodiscard]] std::int64_t worthwhile_bytes(int, int) const override {
    return faults_.worthwhile_bytes;
  }
  [[nodiscard]] bool peek(int peer, int lane, Message* message) override;
  [[nodiscard]] bool read(int peer, const Message& message, std::int64_t offset, std::byte* target,
                          std::int64_t size_bytes) override {
    if (faults_.kind == Faults::Kind::kUnread && reads_++ == faults_.at_message) return false;
    return inner_->read(peer, message, offset, target, size_bytes);
  }
  void release(int peer, int lane) override;

 private:
  // Polls until the oldest message of a lane is let through; -1: not drawn yet.
  [[nodiscard]] int& delay_of(int peer, int lane);
  [[nodiscard]] std::uint32_t draw() { return philox_.words(draws_++, 0)[0]; }

  std::unique_ptr<Transport> inner_;
  Faults faults_;
  Philox philox_;
  std::uint64_t draws_ = 0;
  std::int64_t messages_ = 0;
  std::int64_t reads_ = 0;
  std::vector<int> delays_;
};

// For Options::wrap_transport. Ranks draw differently: the rank is mixed into the seed.
[[nodiscard]] std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>, int)>
with_faults(const Faults& faults);

}  // namespace sinew::comm::testing
