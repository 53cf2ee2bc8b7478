// MappedTransport: lanes in memory that all ranks map. Serves both `local` and `shm`; they differ
// only in how that memory came about (comm/memory.h).
//
// A lane is a ring of envelopes, one cache line each, written by the sender, and one line with the
// receiver's count of released messages. A message's bytes lie
//   - in the envelope itself, when they are few;
//   - in the sender's buffer, when the receiver can address it (threads, symmetric allocations):
//   nothing is
//     copied and the sender learns of the release;
//   - there too, when the receiver only moves it on and the kernel lets it read the sender's memory
//   (pull.h): one copy, by the receiver alone;
//   - in the slot of the envelope otherwise: copied in by the sender, read in place by the
//   receiver.
//
// Between cores that share no cache a line that one has written comes to the other many times
// slower than from memory, so slots are then written past the cache. Which is the case may change
// while a virtual machine runs: a sender keeps an eye on how long the receiver's counter takes to
// arrive.
//
// Ordering: the sender's release store of an envelope's sequence meets the receiver's acquire load
// in peek; the receiver's release store of the count of released messages meets the sender's
// acquire load in send and released.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/regions.h"
#include "comm/roster.h"
#include "comm/transport.h"
#include "comm/transport/pull.h"

namespace sinew::comm {

// Where everything lies in a communicator's block; every rank computes the same.
class MappedLayout {
 public:
  explicit MappedLayout(int world);

  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] std::int64_t slot_bytes(int lane) const;
  [[nodiscard]] std::size_t envelopes(int from, int to, int lane) const;
  [[nodiscard]] std::size_t released(int from, int to, int lane) const;
  [[nodiscard]] std::size_t slots(int from, int to, int lane) const;

  static constexpr int kDepth = 4;

 private:
  [[nodiscard]] std::size_t pair(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(world_) +
           static_cast<std::size_t>(to);
  }
  int world_;
  std::size_t released_;
  std::size_t slots_;
  std::size_t size_bytes_;
  std::size_t pair_slot_bytes_;
  std::int64_t slot_bytes_[3];          // blocking, started, tag and setup lanes
  std::size_t lane_slots_[kLanes + 1];  // offset of a lane's slots within its pair's
};

struct MappedPlace {
  std::byte* memory = nullptr;  // MappedLayout::size_bytes bytes, zero before first use
  int rank = 0;
  int world = 1;
  bool one_address_space = false;
  const std::vector<int>* origins = nullptr;  // [world], for regions
  Regions* regions = nullptr;
  Roster* roster = nullptr;
  std::string_view name;
  const Pull* pull = nullptr;  // null: peers cannot read this process's own memory
  Copies copies = Copies::kAuto;
};

class MappedTransport final : public Transport {
 public:
  explicit MappedTransport(const MappedPlace& place);

  [[nodiscard]] const Traits& traits() const override { return traits_; }
  [[nodiscard]] Sent send(int peer, int lane, std::uint64_t flag, const std::byte* data,
                          std::int64_t size_bytes, Source source) override;
  [[nodiscard]] bool released(int peer, int lane, std::uint64_t sequence) override;
  [[nodiscard]] bool peek(int peer, int lane, Message* message) override;
  [[nodiscard]] bool read(int peer, const Message& message, std::int64_t offset, std::byte* target,
                          std::int64_t size_bytes) override;
  void release(int peer, int lane) override;

 private:
  enum class Kind : std::uint32_t { kInline, kSlot, kAddress, kRegion, kPull };
  static constexpr std::int64_t kInlineBytes = 32;
  struct alignas(64) Envelope {
    std::atomic<std::uint64_t> sequence;  // number of the message in its lane, from 1
    std::uint64_t flag;
    std::int64_t size_bytes;
    Kind kind;
    std::uint32_t unused;
    union {
      std::byte data[kInlineBytes];
      struct {
        std::uint64_t key_or_address;
        std::uint64_t offset;
      } where;
    };
  };
  static_assert(sizeof(Envelope) == 64);
  struct alignas(64) Released {
    std::atomic<std::uint64_t> count;
  };
  // One end of a lane as this rank sees it: addresses resolved once.
  struct Outgoing {
    Envelope* envelopes = nullptr;
    std::byte* slots = nullptr;
    Released* released = nullptr;
    std::uint64_t sent = 0;
    std::uint64_t known_released = 0;
    std::int64_t slot_bytes = 0;
  };
  struct Incoming {
    Envelope* envelopes = nullptr;
    const std::byte* slots = nullptr;
    Released* released = nullptr;
    std::uint64_t taken = 0;
    std::int64_t slot_bytes = 0;
  };

  [[nodiscard]] Outgoing& outgoing(int peer, int lane) { return outgoing_[index(peer, lane)]; }
  [[nodiscard]] Incoming& incoming(int peer, int lane) { return incoming_[index(peer, lane)]; }
  static std::size_t index(int peer, int lane) {
    return static_cast<std::size_t>(peer) * kLanes + static_cast<std::size_t>(lane);
  }
  // How far away a peer is, by the last times its counter took to arrive.
  class Distance {
   public:
    void note(std::int64_t arrival_ns);
    [[nodiscard]] bool far() const { return score_ >= kFarScore; }

   private:
    static constexpr int kMostScore = 8;
    static constexpr int kFarScore = 4;
    int score_ = 0;
  };

  // Lets the receiver read the source: the bytes that this message then stands for, 0 when it
  // cannot.
  [[nodiscard]] std::int64_t expose(int peer, const std::byte* data, std::int64_t size_bytes,
                                    Source source, Envelope& envelope) const;
  [[nodiscard]] bool pulls(int peer, std::int64_t size_bytes, Source source) const;
  [[nodiscard]] std::int64_t fill_slot(int peer, std::byte* slot, std::int64_t slot_bytes,
                                       const std::byte* data, std::int64_t size_bytes,
                                       Source source) const;
  void look_at_released(int peer, Outgoing& out);

  MappedPlace place_;
  Traits traits_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<Distance> distances_;  // [world]
};

}  // namespace sinew::comm
