// verbs: a Wire over RDMA devices. One reliable connection (queue pair) per peer; a block is an
// RDMA write with immediate data from the place's staging into its slot at the peer, a credit an
// empty one. The immediate data of a write is reported only when all of its bytes are in place, so
// no memory is ever polled. Small blocks are sent inline.
//
// A large block is offered: the write carries where it lies, the peer reads it from there to where
// it is wanted, and says so. Staging and slots are registered once; memory of callers while bytes
// of it are under way (verbs_regions.h).
//
// This header is what two ends tell each other; tests garble it.
#pragma once

#include <cstdint>
#include <type_traits>

namespace sinew::comm {

// Of one end of one pair's connection.
struct VerbsAddress {
  std::uint8_t gid[16];
  std::uint64_t slots;  // where the sender's slots begin
  std::uint32_t key;    // remote key of the slots
  std::uint32_t queue_pair;
  std::uint32_t first_packet;
  std::uint16_t lid;
  std::uint8_t mtu;    // as enum ibv_mtu
  std::uint8_t reads;  // that may be under way
};
static_assert(sizeof(VerbsAddress) == 40 && std::is_trivially_copyable_v<VerbsAddress>);

// Sent ahead of a block's data, in the room before its slot.
struct VerbsHead {
  std::uint64_t flag;
  std::uint32_t size;
  std::uint32_t credits;  // of the lane, that the block brings
};
// Sent instead of a block: where it may be read.
struct VerbsOffer {
  std::uint64_t source;
  std::uint32_t key;
  std::uint32_t unused;
  VerbsHead head;
};
static_assert(sizeof(VerbsOffer) == 32 && std::is_trivially_copyable_v<VerbsOffer>);

}  // namespace sinew::comm
