#include "comm/transport/mapped.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "kernels/reduce.h"
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

// The rest was measured on two cores of an EPYC of the Zen 4 kind under a hypervisor that moves
// them between one third-level cache and two ("far"), f32, 2 ranks.
//
// Reading a peer's memory costs 0.3 us per page before the first byte: messages of 32 KiB of an
// all-to-all take 7.4 us by reading, 6.4 by slots; of 64 KiB 11 and 13 us, with four ranks on the
// two cores 51 and 75.
constexpr std::int64_t kPullBytes = 64 << 10;
constexpr std::int64_t kPulledPiece = 1 << 20;
// Past the cache a slot costs its writer twice as much and saves its reader the fetching of dirty
// lines. That pays when the writer has nothing else to do (broadcast of 64 KiB: 5.9 instead of 9.0
// us), and always when far (all-reduce of 2 MiB: 0.21 instead of 1.05 ms).
constexpr std::int64_t kPastCacheBytes = 32 << 10;
constexpr std::int64_t kFarPastCacheBytes = 4 << 10;
// Memory is not a cache: what fits does not matter, how soon the reader can begin does.
constexpr std::int64_t kPastCachePiece = 32 << 10;
// How long a changed line takes to arrive, with the 20 ns that the clock costs: 30 to 70 ns within
// a third-level cache, 120 to 140 between two; above the second bound something else was in the
// way.
constexpr std::int64_t kFarNs = 95;
constexpr std::int64_t kDisturbedNs = 3000;

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
  distances_.resize(static_cast<std::size_t>(place.world));
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

void MappedTransport::Distance::note(std::int64_t arrival_ns) {
  if (arrival_ns > kDisturbedNs) return;
  score_ = std::clamp(score_ + (arrival_ns > kFarNs ? 1 : -1), 0, kMostScore);
}

bool MappedTransport::pulls(int peer, std::int64_t size_bytes, Source source) const {
  if (place_.pull == nullptr || !place_.pull->reads_me(peer)) return false;
  return place_.copies == Copies::kPull || (source == Source::kMoved && size_bytes >= kPullBytes);
}

std::int64_t MappedTransport::expose(int peer, const std::byte* data, std::int64_t size_bytes,
                                     Source source, Envelope& envelope) const {
  if (source == Source::kCopied || size_bytes < kExposeBytes) return 0;
  if (place_.one_address_space) {
    envelope.kind = Kind::kAddress;
    envelope.where.key_or_address = reinterpret_cast<std::uintptr_t>(data);
    return std::min(size_bytes, kExposedPiece);
  }
  if (!place_.regions->empty()) {
    const Regions::Place found =
        place_.regions->find(data, size_bytes, (*place_.origins)[static_cast<std::size_t>(peer)]);
    if (found.key != 0) {
      envelope.kind = Kind::kRegion;
      envelope.where.key_or_address = found.key;
      envelope.where.offset = found.offset;
      return std::min(size_bytes, kExposedPiece);
    }
  }
  if (!pulls(peer, size_bytes, source)) return 0;
  envelope.kind = Kind::kPull;
  envelope.where.key_or_address = reinterpret_cast<std::uintptr_t>(data);
  return std::min(size_bytes, kPulledPiece);
}

std::int64_t MappedTransport::fill_slot(int peer, std::byte* slot, std::int64_t slot_bytes,
                                        const std::byte* data, std::int64_t size_bytes,
                                        Source source) const {
  const bool far = distances_[static_cast<std::size_t>(peer)].far();
  const bool moved = source == Source::kMoved || source == Source::kPushed;
  const bool past_cache =
      (far && size_bytes >= kFarPastCacheBytes) || (moved && size_bytes >= kPastCacheBytes);
  const std::int64_t taken =
      std::min({size_bytes, slot_bytes, past_cache ? kPastCachePiece : slot_bytes});
  kernels::copy(slot, data, taken,
                past_cache ? kernels::Stores::kPastCache : kernels::Stores::kCached);
  return taken;
}

// A load that finds a new count has fetched its line from the receiver's cache.
void MappedTransport::look_at_released(int peer, Outgoing& out) {
  const std::int64_t before_ns = now_ns();
  const std::uint64_t count =
      out.released->count.load(std::memory_order_acquire);  // meets release()
  if (count == out.known_released) return;
  distances_[static_cast<std::size_t>(peer)].note(now_ns() - before_ns);
  out.known_released = count;
}

Sent MappedTransport::send(int peer, int lane, std::uint64_t flag, const std::byte* data,
                           std::int64_t size_bytes, Source source) {
  Outgoing& out = outgoing(peer, lane);
  if (out.sent - out.known_released == MappedLayout::kDepth) {
    look_at_released(peer, out);
    if (out.sent - out.known_released == MappedLayout::kDepth) return {};
  }
  const std::uint64_t place = out.sent % MappedLayout::kDepth;
  Envelope& envelope = out.envelopes[place];
  Sent sent;
  if (size_bytes <= kInlineBytes) {
    envelope.kind = Kind::kInline;
    if (size_bytes > 0) std::memcpy(envelope.data, data, static_cast<std::size_t>(size_bytes));
    sent.size_bytes = size_bytes;
  } else if (const std::int64_t exposed = expose(peer, data, size_bytes, source, envelope);
             exposed > 0) {
    sent.size_bytes = exposed;
    sent.exposed = true;
  } else {
    envelope.kind = Kind::kSlot;
    sent.size_bytes =
        fill_slot(peer, out.slots + place * static_cast<std::uint64_t>(out.slot_bytes),
                  out.slot_bytes, data, size_bytes, source);
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
  look_at_released(peer, out);
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
  message->remote = 0;
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
    case Kind::kPull:
      message->data = nullptr;
      message->remote = envelope.where.key_or_address;
      break;
  }
  return true;
}

bool MappedTransport::read(int peer, const Message& message, std::int64_t offset, std::byte* target,
                           std::int64_t size_bytes) {
  return message.remote != 0 && place_.pull != nullptr &&
         place_.pull->read(peer, message.remote + static_cast<std::uint64_t>(offset), target,
                           size_bytes);
}

void MappedTransport::release(int peer, int lane) {
  Incoming& in = incoming(peer, lane);
  in.released->count.store(++in.taken, std::memory_order_release);  // meets send() and released()
  place_.roster->doorbell(peer).ring();
}

}  // namespace sinew::comm
