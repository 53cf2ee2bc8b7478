// Transport: the seam between schedules and bytes. Messages flow through lanes, FIFO between an
// ordered pair of ranks; the transport decides how each one's bytes move and how large a message
// may be.
//
// Never does: reduce, match tags, wait, or know collectives.
// Threads: one transport per rank, one thread at a time; peers run concurrently.
// Invariants
//   1. Messages of one lane arrive in the order sent, each exactly once, with the flag given to
//   send.
//   2. A lane holds `credits` messages that its receiver has not released; then send takes nothing.
//   3. No call blocks; none throws after setup.
//   4. Message::data stays valid and unchanged until release.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sinew::comm {

// Lanes of an ordered pair of ranks: collectives in flight each have a channel of kLanesPerChannel,
// then one lane per tag of point-to-point messages, then one for the communicator's own setup
// traffic.
inline constexpr int kChannels =
    4;  // channel 0 is for blocking calls, the others for started ones in turn
inline constexpr int kLanesPerChannel = 2;
inline constexpr int kTagLanes = 16;
inline constexpr int kFirstTagLane = kChannels * kLanesPerChannel;
inline constexpr int kSetupLane = kFirstTagLane + kTagLanes;
inline constexpr int kLanes = kSetupLane + 1;

struct Traits {
  std::string_view name;
  int credits = 0;  // unreleased messages per lane
  std::int64_t slot_bytes =
      0;                    // largest message that is copied on its way, of a blocking collective
  bool maps_peers = false;  // any buffer of a peer can be read in place
  bool lands = false;       // heeds expect()
};

struct Message {
  std::uint64_t flag = 0;
  std::int64_t size_bytes = 0;
  const std::byte* data = nullptr;  // null: not addressable, read() copies it out
  std::uint64_t remote = 0;         // for read()
};

// What a transport may do with the source of a message.
enum class Source : std::uint8_t {
  kCopied,  // copy it before send returns
  kStable,  // the receiver may read it itself, later
  kMoved,   // as kStable; the receiver only puts it where it stays, while this rank has other work
  kPushed,  // as kMoved, but this rank has nothing better to do than to help with the copying
};

// What became of a send.
struct Sent {
  static constexpr std::int64_t kNoCredit = -1;
  std::int64_t size_bytes = kNoCredit;  // how much of the data this message took
  std::uint64_t sequence = 0;           // of the message in its lane, from 1
  bool exposed = false;                 // the source must stay unchanged until released(sequence)
};

// The next total_bytes of a lane: the first ready_bytes of them are wanted at target, which nobody
// touches until they are released, the others will be, once the receiver says so. target null: they
// are only read, where the transport holds them.
struct Wanted {
  std::byte* target = nullptr;
  std::int64_t ready_bytes = 0;
  std::int64_t total_bytes = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual const Traits& traits() const = 0;

  // Sends one message holding the first bytes of data, as many as suit. Takes a multiple of 64 or
  // all.
  [[nodiscard]] virtual Sent send(int peer, int lane, std::uint64_t flag, const std::byte* data,
                                  std::int64_t size_bytes, Source source) = 0;
  [[nodiscard]] virtual bool released(int peer, int lane, std::uint64_t sequence) = 0;
  // Fewer bytes are not worth a message while more of the same data are about to be ready.
  [[nodiscard]] virtual std::int64_t worthwhile_bytes(int peer, int lane) const {
    (void)peer, (void)lane;
    return 0;
  }

  // The oldest unreleased message from peer, if it has arrived.
  [[nodiscard]] virtual bool peek(int peer, int lane, Message* message) = 0;
  // Copies a part of a message whose data is null. False: the peer's memory could not be read.
  [[nodiscard]] virtual bool read(int peer, const Message& message, std::int64_t offset,
                                  std::byte* target, std::int64_t size_bytes) = 0;
  virtual void release(int peer, int lane) = 0;

  // A hint: the oldest unreleased messages of this lane are `now`'s, those after them `then`'s. A
  // transport may let messages arrive where they are wanted; Message::data then points there.
  // Asked for while `now` still arrives, `then` does not begin by waiting for its first bytes.
  virtual void expect(int peer, int lane, const Wanted& now, const Wanted& then) {
    (void)peer, (void)lane, (void)now, (void)then;
  }
};

}  // namespace sinew::comm
