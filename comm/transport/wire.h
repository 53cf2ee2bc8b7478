// Wire: one rank's end of a network to peers whose memory it cannot map. A wire carries blocks of
// bytes into places that the receiver keeps free for them, and short credits back; NetTransport
// (net.h) makes lanes of that. UCX and verbs are wires.
//
// Never does: match lanes, count credits, wait, or know collectives.
// Threads: one thread at a time; not always the same one.
// Invariants
//   1. At most one block of a (peer, lane, place) is under way; the sender's NetTransport sees to
//   it.
//   2. A block is announced as arrived once, when all of its bytes lie in the receiver's slot or
//   where land() wanted them. Nothing is assumed about the order in which they were placed.
//   3. After broken() of a peer nothing more is announced for it, and posts to it count as sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/transport.h"

namespace sinew::comm {

// The lanes of transport.h, and one for notices between the communicators themselves.
inline constexpr int kNoticeLane = kLanes;
inline constexpr int kNetLanes = kLanes + 1;

// Where the blocks of a peer lie; every rank computes the same, for its slots and its staging.
class NetLayout {
 public:
  static constexpr int kDepth = 8;  // places of a lane
  // Beside them, of a collective's lane: where one offered block at a time lands that is only read.
  // What is read and written there again and again stays in a cache, which eight slots do not.
  static constexpr int kLanding = kDepth;
  [[nodiscard]] static bool has_landing(int lane) { return lane < kFirstTagLane; }
  // Room before a slot's data for what a wire sends ahead of it; data begins at a cache line.
  static constexpr std::int64_t kLeadBytes = 64;
  static constexpr std::int64_t kNoticeBytes = 2048;
  // No shorter message goes from where it lies to where it is wanted: copying costs less than
  // asking.
  static constexpr std::int64_t kOfferBytes = 32 << 10;

  // Of a message between two ranks: its receiver always knows where it is wanted, so an offer may
  // be longer than a slot. At 4 MiB what a rendezvous costs beside its bytes is less than a
  // hundredth.
  static constexpr std::int64_t kWholeBytes = 4 << 20;

  explicit NetLayout(int world);
  [[nodiscard]] std::int64_t slot_bytes(int lane) const;
  // The longest block of a lane; whole: that is offered, by a wire that exposes whole messages.
  [[nodiscard]] std::int64_t most_bytes(int lane, bool whole) const {
    return whole && lane >= kFirstTagLane && lane != kNoticeLane ? kWholeBytes : slot_bytes(lane);
  }
  // Of the slot's data, from the start of the memory that all peers' slots share.
  [[nodiscard]] std::size_t offset(int peer, int lane, int place) const {
    const auto at = static_cast<std::size_t>(lane);
    return static_cast<std::size_t>(peer) * lane_start_[kNetLanes] + lane_start_[at] +
           static_cast<std::size_t>(place) *
               static_cast<std::size_t>(slot_bytes(lane) + kLeadBytes) +
           kLeadBytes;
  }
  [[nodiscard]] std::size_t size_bytes() const {
    return static_cast<std::size_t>(world_) * lane_start_[kNetLanes];
  }

 private:
  int world_;
  std::int64_t slot_bytes_[3];  // blocking, started, tag and setup lanes
  std::size_t lane_start_[kNetLanes + 1];
};

// Who is told what a wire sees, during Wire::progress, post and credit.
class WireSink {
 public:
  virtual ~WireSink() = default;
  virtual void arrived(int peer, int lane, int place, std::uint64_t flag, std::int64_t size) = 0;
  // The same of a block that the wire holds and gives up then: its bytes are copied from there.
  // credits: as credited(), before it; 0: none.
  virtual void brought(int peer, int lane, int place, std::uint64_t flag,
                       std::span<const std::byte> block, int credits) = 0;
  // The block waits at the sender until land() says where it is wanted; then it arrives.
  virtual void offered(int peer, int lane, int place, std::uint64_t flag, std::int64_t size) = 0;
  virtual void credited(int peer, int lane, int count) = 0;
  virtual void sent(int peer, int lane, int place) = 0;  // the block's source may change
  virtual void broken(int peer, const std::string& why) = 0;
};

struct WirePlace {
  Bootstrap* bootstrap = nullptr;  // during construction only
  std::vector<bool> reaches;       // [world]: the peers that this wire is for
  const NetLayout* layout = nullptr;
  std::byte* slots = nullptr;  // where blocks arrive, layout->size_bytes()
  std::byte* staging = nullptr;
  WireSink* sink = nullptr;
  std::string_view argument;  // what follows the wire's name: a device
};

struct Post {
  int peer = 0;
  int lane = 0;
  int place = 0;
  std::uint64_t flag = 0;
  const std::byte* data = nullptr;  // the place's staging, or, where the wire exposes, anything
  std::int64_t size = 0;
  int credits = 0;  // of this lane, returned with the block
  // Of data, where it is not in the staging: the block and what is likely to be sent next; else 0.
  std::int64_t exposed_bytes = 0;
};

class Wire {
 public:
  virtual ~Wire() = default;
  // Whether posts may name memory outside the staging, and how much of it.
  enum class Exposes : std::uint8_t { kNothing, kBlocks, kWhole };
  [[nodiscard]] virtual Exposes exposes() const = 0;
  // A shorter block that fits into a slot is better copied than offered.
  [[nodiscard]] virtual std::int64_t offers_from(int peer) const {
    (void)peer;
    return NetLayout::kOfferBytes;
  }
  // What has become of a posted block. Unless it is sent, so that its source may change, sent()
  // will say when it is. kCopied: it was exposed, but copied first, since its memory cannot be lent
  // to the device.
  enum class Posted : std::uint8_t { kSent, kLent, kCopied };
  [[nodiscard]] virtual Posted post(const Post& post) = 0;
  virtual void credit(int peer, int lane, int count) = 0;
  // Takes in an offered block. target: where it is wanted, with room for more after it, which may
  // be in the slots' memory; null: in the slot of its place. False: it goes to the slot all the
  // same.
  virtual bool land(int peer, int lane, int place, std::byte* target, std::int64_t room) = 0;
  virtual void progress() = 0;
  // Of a peer that has no credit left for a word: finds out whether it lives, for which broken()
  // is the answer. Nothing, where the network tells of dead peers unasked.
  virtual void probe(int peer) { (void)peer; }
  // What it runs over and how, in one line.
  [[nodiscard]] virtual std::string describe() const = 0;
  // Ends all connections: afterwards no memory of this rank is read or written for a peer.
  virtual void stop() = 0;
};

// A kind of wire that a build may have.
struct WireKind {
  std::string_view name;
  // Why this process cannot use it, in one line; empty: it can. Cheap.
  std::string (*missing)(std::string_view argument);
  // Collective. Throws Error, the same on all ranks.
  std::unique_ptr<Wire> (*make)(const WirePlace& place);
};
// In the order of preference.
[[nodiscard]] std::span<const WireKind> wire_kinds();

// Collective: throws Error on all ranks, with the text of the first rank whose `error` is not
// empty.
void agree_on_setup(Bootstrap& bootstrap, const std::string& error);

}  // namespace sinew::comm
