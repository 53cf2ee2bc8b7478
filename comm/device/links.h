// Links: the device memory through which ranks reach each other inside kernels.
//
// Each rank owns one block of memory that all peers map. It begins with the abort word; then comes,
// for every peer, its latest call; then, for every (peer, lane, channel), a link: what the peer
// writes to reach this rank. Pointers come from a table, so that memory mapped from another
// process, memory of the same process and the twin's are alike.
//
// Invariants
//   1. The i-th message of (source, target, lane, channel) lies in slot (i - 1) % slots of the
//      target's link, i counted from 1 over all launches.
//   2. Each protocol has slots of its own: what one leaves there could look like another's arrival.
//   3. A slot is written only when the target has released the message that lay there:
//      i <= released + slots.
//   4. arrived and released are stored with release by the other side and loaded with acquire here,
//      at system scope; sent and taken belong to this rank alone.
#pragma once

#include <cstdint>

namespace sinew::comm {

constexpr int kLinkWorldMax = 64;  // ranks that map each other; the table is a kernel argument
constexpr int kLinkLanes = 2;      // as every transport has for one channel
constexpr int kLinkAreas = 3;      // sets of slots, one for each protocol
constexpr std::int64_t kLinkHeaderBytes = 256;

// What a peer wrote here when it began its latest call. flag: comm/call.h's, whose history makes
// ranks that differed in one call differ ever after; stored with release. The others say in words
// what the call was, to the host, which reads them when the kernel has ended.
struct CallPost {
  alignas(64) std::uint64_t flag;
  std::uint64_t packed;
  std::uint64_t count;
};
static_assert(sizeof(CallPost) == 64);
constexpr std::int64_t kLinkPostBytes = kLinkWorldMax * std::int64_t{sizeof(CallPost)};

// Words of different writers lie in different lines.
struct LinkWords {
  alignas(64) std::uint64_t arrived;   // messages from the peer; written by the peer
  alignas(64) std::uint64_t released;  // messages to the peer that it has used; written by the peer
  alignas(64) std::uint64_t sent;      // messages to the peer
  alignas(64) std::uint64_t taken;     // messages from the peer that were used
};
static_assert(sizeof(LinkWords) == 256);

struct Links {
  int rank;
  int world;
  int channels;
  int slots;
  std::int64_t slot_bytes;  // a multiple of 128
  char* memory[kLinkWorldMax];

  [[nodiscard]] constexpr std::int64_t link_bytes() const {
    return static_cast<std::int64_t>(sizeof(LinkWords)) + kLinkAreas * slots * slot_bytes;
  }
  [[nodiscard]] constexpr std::int64_t size_bytes() const {
    return kLinkHeaderBytes + kLinkPostBytes +
           std::int64_t{world} * kLinkLanes * channels * link_bytes();
  }
  [[nodiscard]] constexpr char* post(int owner, int peer) const {
    return memory[owner] + kLinkHeaderBytes + std::int64_t{peer} * std::int64_t{sizeof(CallPost)};
  }
  // Where the owner keeps what `peer` sends it.
  [[nodiscard]] constexpr char* link(int owner, int peer, int lane, int channel) const {
    const std::int64_t index = (std::int64_t{peer} * kLinkLanes + lane) * channels + channel;
    return memory[owner] + kLinkHeaderBytes + kLinkPostBytes + index * link_bytes();
  }
  [[nodiscard]] constexpr char* slot(int area, int owner, int peer, int lane, int channel,
                                     std::uint64_t message) const {
    const auto place = static_cast<std::int64_t>((message - 1) % static_cast<std::uint64_t>(slots));
    return link(owner, peer, lane, channel) + sizeof(LinkWords) +
           (std::int64_t{area} * slots + place) * slot_bytes;
  }
};

// The abort word: 0, or who gave up waiting for whom, or found that the peer called something else,
// and in which of its calls (its low 31 bits).
enum class AbortCause : std::uint16_t { kWaited = 0, kMismatch = 0x8000 };
constexpr std::uint64_t abort_word(AbortCause cause, int rank, int peer, std::uint64_t call) {
  return std::uint64_t{1} << 63 | (call & 0x7fffffffU) << 32 |
         static_cast<std::uint64_t>(rank) << 16 | static_cast<std::uint64_t>(cause) |
         static_cast<std::uint64_t>(peer);
}
constexpr bool abort_is_mismatch(std::uint64_t word) {
  return (word & static_cast<std::uint64_t>(AbortCause::kMismatch)) != 0;
}
constexpr int abort_rank(std::uint64_t word) { return static_cast<int>(word >> 16 & 0xffffU); }
constexpr int abort_peer(std::uint64_t word) { return static_cast<int>(word & 0x7fffU); }
constexpr std::uint64_t abort_call(std::uint64_t word) { return word >> 32 & 0x7fffffffU; }

}  // namespace sinew::comm
