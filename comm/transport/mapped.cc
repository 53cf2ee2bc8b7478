#include "comm/transport/mapped.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "sched/base/check.h"

namespace sinew::comm {

namespace {

constexpr std::size_t kLine = 64;

// Slots of a communicator share these budgets, so that a large world has small slots instead of a
// large block. A slot is best when it and what is made of it fit into the second-level cache (1 MiB
// here) several times over; below 1 KiB the envelope costs more than the bytes.
constexpr std::int64_t kBudget[3] = {8 << 20, 4 << 20, 4 << 20};
constexpr std::int64_t kMostSlotBytes[3] = {128 << 10, 64 << 10, 64 << 10};
constexpr std::int64_t kLeastSlotBytes = 1 << 10;

// Below this a copy is cheaper than waiting for the peer's release before the call may return.
constexpr std::int64_t kExposeBytes = 16 << 10;
// Cuts large exposed messages so that both ends work on different parts at once and find them in
// cache.
constexpr std::int64_t kExposedPiece = 256 << 10;

int lane_class(int lane) {
  if (lane < kLanesPerChannel) return 0;
  return lane < kFirstTagLane ? 1 : 2;
}

constexpr int kLanesOfClass[3] = {kLanesPerChannel, kFirstTagLane - kLanesPerChannel,
                                  kLanes - kFirstTagLane};

std::int64_t floor_power_of_two(std::int64_t value) {
  std::int64_t result = 1;
  while (result * 2 <= value) result *= 2;
  return result;
}

}  // namespace

MappedLayout::MappedLayout(int world) : world_(world) {
  const std::size_t pairs = static_cast<std::size_t>(world) * static_cast<std::size_t>(world);
  const std::int64_t true_pairs = std::max<std::int64_t>(1, std::int64_t{world} * (world - 1));
  for (int i = 0; i < 3; ++i) {
    const std::int64_t share = kBudget[i] / (true_pairs * kLanesOfClass[i] * kDepth);
    slot_bytes_[i] = std::clamp(floor_power_of_two(std::max<std::int64_t>(share, 1)),
                                kLeastSlotBytes, kMostSlotBytes[i]);
  }
  lane_slots_[0] = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    lane_slots_[lane + 1] = lane_slots_[lane] + static_cast<std::size_t>(slot_bytes(lane)) * kDepth;
  }
  pair_slot_bytes_ = lane_slots_[kLanes];
  released_ = pairs * kLanes * kDepth * kLine;
  slots_ = released_ + pairs * kLanes * kLine;
  // A rank sends itself nothing through lanes, so the diagonal has no slots.
  size_bytes_ = slots_ + pair_slot_bytes_ * static_cast<std::size_t>(world) *
                             static_cast<std::size_t>(world - 1);
}

std::int64_t MappedLayout::slot_bytes(int lane) const { return slot_bytes_[lane_class(lane)]; }

std::size_t MappedLayout::envelopes(int from, int to, int lane) const {
  return (pair(from, to) * kLanes + static_cast<std::size_t>(lane)) * kDepth * kLine;
}

std::size_t MappedLayout::released(int from, int to, int lane) const {
  return released_ + (pair(from, to) * kLanes + static_cast<std::size_t>(lane)) * kLine;
}

std::size_t MappedLayout::slots(int from, int to, int lane) const {
  const int column = to < from ? to : to - 1;
  const std::size_t off_diagonal =
      static_cast<std::size_t>(from) * static_cast<std::size_t>(world_ - 1) +
      static_cast<std::size_t>(column);
  return slots_ + off_diagonal * pair_slot_bytes_ + lane_slots_[lane];
}

MappedTransport::MappedTransport(const MappedPlace& place) : place_(place) {
  const MappedLayout layout(place.world);
  traits_ = {place.name, MappedLayout::kDepth, layout.slot_bytes(0), place.one_address_space};
  outgoing_.resize(static_cast<std::size_t>(place.world) * kLanes);
  incoming_.resize(static_cast<std::size_t>(place.world) * kLanes);
  const auto line = [&](std::size_t offset) { return place.memory + offset; };
  for (int peer = 0; peer < place.world; ++peer) {
    if (peer == place.rank) continue;
    for (int lane = 0; lane < kLanes; ++lane) {
      outgoing(peer, lane) = {.envelopes = std::launder(reinterpret_cast<Envelope*>(
                                  line(layout.envelopes(place.rank, peer, lane)))),
                              .slots = line(layout.slots(place.rank, peer, lane)),
                              .released = std::launder(reinterpret_cast<Released*>(
                                  line(layout.released(place.rank, peer, lane)))),
                              .slot_bytes = layout.slot_bytes(lane)};
      incoming(peer, lane) = {.envelopes = std::launder(reinterpret_cast<Envelope*>(
                                  line(layout.envelopes(peer, place.rank, lane)))),
                              .slots = line(layout.slots(peer, place.rank, lane)),
                              .released = std::launder(reinterpret_cast<Released*>(
                                  line(layout.released(peer, place.rank, lane)))),
                              .slot_bytes = layout.slot_bytes(lane)};
    }
  }
}

bool MappedTransport::expose(int peer, const std::byte* data, std::int64_t size_bytes,
                             Envelope& envelope) const {
  if (place_.one_address_space) {
    envelope.kind = Kind::kAddress;
    envelope.where.key_or_address = reinterpret_cast<std::uintptr_t>(data);
    return true;
  }
  if (place_.regions->empty()) return false;
  const Regions::Place found =
      place_.regions->find(data, size_bytes, (*place_.origins)[static_cast<std::size_t>(peer)]);
  if (found.key == 0) return false;
  envelope.kind = Kind::kRegion;
  envelope.where.key_or_address = found.key;
  envelope.where.offset = found.offset;
  return true;
}

Sent MappedTransport::send(int peer, int lane, std::uint64_t flag, const std::byte* data,
                           std::int64_t size_bytes, Source source) {
  Outgoing& out = outgoing(peer, lane);
  if (out.sent - out.known_released == MappedLayout::kDepth) {
    out.known_released = out.released->count.load(std::memory_order_acquire);  // meets release()
    if (out.sent - out.known_released == MappedLayout::kDepth) return {};
  }
  const std::uint64_t place = out.sent % MappedLayout::kDepth;
  Envelope& envelope = out.envelopes[place];
  Sent sent;
  if (size_bytes <= kInlineBytes) {
    envelope.kind = Kind::kInline;
    if (size_bytes > 0) std::memcpy(envelope.data, data, static_cast<std::size_t>(size_bytes));
    sent.size_bytes = size_bytes;
  } else if (source == Source::kStable && size_bytes >= kExposeBytes &&
             expose(peer, data, size_bytes, envelope)) {
    sent.size_bytes = std::min(size_bytes, kExposedPiece);
    sent.exposed = true;
  } else {
    envelope.kind = Kind::kSlot;
    sent.size_bytes = std::min(size_bytes, out.slot_bytes);
    std::memcpy(out.slots + place * static_cast<std::uint64_t>(out.slot_bytes), data,
                static_cast<std::size_t>(sent.size_bytes));
  }
  envelope.flag = flag;
  envelope.size_bytes = sent.size_bytes;
  sent.sequence = ++out.sent;
  envelope.sequence.store(out.sent, std::memory_order_release);  // meets peek()
  place_.roster->doorbell(peer).ring();
  return sent;
}

bool MappedTransport::released(int peer, int lane, std::uint64_t sequence) {
  Outgoing& out = outgoing(peer, lane);
  if (out.known_released >= sequence) return true;
  out.known_released = out.released->count.load(std::memory_order_acquire);  // meets release()
  return out.known_released >= sequence;
}

bool MappedTransport::peek(int peer, int lane, Message* message) {
  const Incoming& in = incoming(peer, lane);
  const std::uint64_t place = in.taken % MappedLayout::kDepth;
  const Envelope& envelope = in.envelopes[place];
  if (envelope.sequence.load(std::memory_order_acquire) != in.taken + 1)
    return false;  // meets send()
  message->flag = envelope.flag;
  message->size_bytes = envelope.size_bytes;
  switch (envelope.kind) {
    case Kind::kInline:
      message->data = envelope.data;
      break;
    case Kind::kSlot:
      message->data = in.slots + place * static_cast<std::uint64_t>(in.slot_bytes);
      break;
    case Kind::kAddress:
      message->data = reinterpret_cast<const std::byte*>(envelope.where.key_or_address);
      break;
    case Kind::kRegion:
      message->data = place_.regions->resolve(
          (*place_.origins)[static_cast<std::size_t>(peer)],
          {envelope.where.key_or_address, envelope.where.offset}, envelope.size_bytes);
      break;
  }
  return true;
}

bool MappedTransport::read(int, const Message&, std::int64_t, std::byte*, std::int64_t) {
  return false;
}

void MappedTransport::release(int peer, int lane) {
  Incoming& in = incoming(peer, lane);
  in.released->count.store(++in.taken, std::memory_order_release);  // meets send() and released()
  place_.roster->doorbell(peer).ring();
}

}  // namespace sinew::comm
