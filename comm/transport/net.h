// NetTransport: lanes over a Wire. A message is copied into the place of its lane in the staging
// (or, where the wire can expose it, sent from where it lies), arrives in the same place of the
// receiver's slots and is read there. A place is used again when the receiver has returned its
// credit; credits travel with blocks of the other direction, else several at a time.
//
// A large message is offered first and waits where it lies, until the receiver knows where it is
// wanted (expect) or has looked for it; then it goes there, copied by nobody on its way.
//
// Beside the lanes it carries notices: short messages between the communicators themselves (who
// stands where, who failed, who leaves). They have a lane of their own, on which one place is kept
// for the last word.
//
// Never does: wait.
// Threads: callers hold mutex() around every other call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/transport/wire.h"

namespace sinew::comm {

struct NetPlace {
  Bootstrap* bootstrap = nullptr;  // during construction only
  const WireKind* kind = nullptr;
  std::string_view argument;
  std::vector<bool> reaches;  // [world]
};

class NetTransport final : public Transport, private WireSink {
 public:
  // Collective. Throws Error, the same on all ranks.
  explicit NetTransport(const NetPlace& place);
  ~NetTransport() override;

  [[nodiscard]] const Traits& traits() const override { return traits_; }
  [[nodiscard]] Sent send(int peer, int lane, std::uint64_t flag, const std::byte* data,
                          std::int64_t size_bytes, Source source) override;
  [[nodiscard]] bool released(int peer, int lane, std::uint64_t sequence) override;
  // A whole block: each costs a rendezvous, whose words cross the network and wait for a processor.
  [[nodiscard]] std::int64_t worthwhile_bytes(int, int lane) const override {
    return layout_.slot_bytes(lane);
  }
  [[nodiscard]] bool peek(int peer, int lane, Message* message) override;
  [[nodiscard]] bool read(int peer, const Message& message, std::int64_t offset, std::byte* target,
                          std::int64_t size_bytes) override;
  void release(int peer, int lane) override;
  void expect(int peer, int lane, const Wanted& now, const Wanted& then) override;

  // Without notices: how many of those there are depends on how long ranks wait, what is sent does
  // not.
  [[nodiscard]] const NetworkCounters& counters() const { return counters_; }
  void reset_counters() { counters_ = {}; }
  // Forgets all that was expected: what comes from now on goes to slots, or waits at its sender.
  void want_nothing();
  // Whether bytes are on their way into or out of memory of callers.
  [[nodiscard]] bool borrows() const { return borrowed_ > 0; }
  // Ends all connections, so that nothing more is written or read here: for a caller that fails.
  void stop() { wire_->stop(); }

  [[nodiscard]] std::string describe() const { return wire_->describe(); }
  [[nodiscard]] std::mutex& mutex() { return mutex_; }
  // Whether anything happened that lanes see.
  bool progress() {
    const std::uint64_t before = events_;
    wire_->progress();
    return events_ != before;
  }

  // Notices: `kind` and bytes to every peer that can take one. An urgent one may take a lane's last
  // place.
  enum class Urgency : std::uint8_t { kRoutine, kUrgent };
  void tell(std::uint64_t kind, std::span<const std::byte> text, Urgency urgency);
  // Handles the notices that have arrived.
  using Listener = std::function<void(int peer, std::uint64_t kind, std::span<const std::byte>)>;
  void hear(const Listener& listener);
  // Whether all notices told were heard, except by peers that are gone.
  [[nodiscard]] bool settled() const;

  // The peer will go: what happens to the connection from now on is no failure.
  void let_go(int peer) { peers_[static_cast<std::size_t>(peer)].leaves = true; }
  struct Broken {
    int peer = -1;  // -1: none
    std::string why;
  };
  [[nodiscard]] const Broken& first_broken() const { return broken_; }
  [[nodiscard]] bool reaches(int peer) const {
    return peers_[static_cast<std::size_t>(peer)].reached;
  }

 private:
  static constexpr int kDepth = NetLayout::kDepth;
  struct Outgoing {
    std::uint64_t sent = 0;
    std::uint64_t credited = 0;
    std::uint64_t sequence[kDepth] = {};  // of the message last posted from a place
    bool busy[kDepth] = {};               // the wire may still read its source
    bool exposed[kDepth] = {};            // which is memory of a caller
  };
  struct Incoming {
    enum class State : std::uint8_t { kNone, kOffered, kLanding, kHere };
    struct Arrival {
      std::uint64_t flag = 0;
      std::int64_t size = 0;
      const std::byte* data = nullptr;
      State state = State::kNone;
    };
    Arrival arrivals[kDepth];
    std::uint64_t taken = 0;
    int owed = 0;      // credits not yet returned
    int landing = -1;  // the place whose block lies in the landing; -1: none
    int offers = 0;    // arrivals that are offered and not landing
    Wanted now;        // from the oldest unreleased message on
    Wanted then;
  };
  struct Peer {
    bool reached = false;
    bool leaves = false;
    bool broken = false;
  };

  void arrived(int peer, int lane, int place, std::uint64_t flag, std::int64_t size) override;
  void brought(int peer, int lane, int place, std::uint64_t flag, std::span<const std::byte> block,
               int credits) override;
  void offered(int peer, int lane, int place, std::uint64_t flag, std::int64_t size) override;
  void credited(int peer, int lane, int count) override;
  void sent(int peer, int lane, int place) override;
  void broken(int peer, const std::string& why) override;

  [[nodiscard]] bool worth_exposing(int peer, int lane, std::int64_t size_bytes,
                                    Source source) const;
  void land_offers(int peer, int lane, bool looked_for);
  void land(int peer, int lane, int place, std::byte* target, std::int64_t room);

  static std::size_t index(int peer, int lane) {
    return static_cast<std::size_t>(peer) * kNetLanes + static_cast<std::size_t>(lane);
  }

  struct Free {
    void operator()(std::byte* memory) const;
  };
  NetLayout layout_;
  Traits traits_;
  std::mutex mutex_;
  std::unique_ptr<std::byte[], Free> slots_;
  std::unique_ptr<std::byte[], Free> staging_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<Peer> peers_;
  NetworkCounters counters_;
  std::uint64_t events_ = 0;  // told by the wire
  int borrowed_ = 0;          // blocks under way from or to memory of callers, or landing in slots
  Broken broken_;
  std::unique_ptr<Wire> wire_;  // last: goes first, and may speak to the rest until then
};

}  // namespace sinew::comm
