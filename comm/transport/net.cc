#include "comm/transport/net.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "sched/base/check.h"

namespace sinew::comm {

namespace {

constexpr std::size_t kPage = 4096;

// Per rank and class of lanes, so that a large world has small slots instead of much memory.
constexpr std::int64_t kBudget[3] = {16 << 20, 4 << 20, 16 << 20};
// A rendezvous crosses the network four times, 50 us between two hosts over TCP, where 1 MiB takes
// 500 us at 2 GB/s.
constexpr std::int64_t kMostSlotBytes = 1 << 20;
constexpr std::int64_t kLeastSlotBytes = 1 << 10;
constexpr int kLanesOfClass[3] = {kLanesPerChannel, kFirstTagLane - kLanesPerChannel,
                                  kLanes - kFirstTagLane};

// Half a lane: the sender never runs dry while credits are on their way.
constexpr int kCreditsAtOnce = NetLayout::kDepth / 2;
// Routine notices leave the rest of their lane to urgent ones.
constexpr std::uint64_t kRoutineNotices = 2;

int lane_class(int lane) {
  if (lane < kLanesPerChannel) return 0;
  return lane < kFirstTagLane ? 1 : 2;
}

std::byte* page_aligned(std::size_t size_bytes) {
  return static_cast<std::byte*>(::operator new(size_bytes, std::align_val_t(kPage)));
}

}  // namespace

NetLayout::NetLayout(int world) : world_(world) {
  for (int i = 0; i < 3; ++i) {
    const auto share = static_cast<std::uint64_t>(
        kBudget[i] / (std::max(1, world - 1) * kLanesOfClass[i] * kDepth));
    slot_bytes_[i] = std::clamp(static_cast<std::int64_t>(std::bit_floor(share)), kLeastSlotBytes,
                                kMostSlotBytes);
  }
  lane_start_[0] = 0;
  for (int lane = 0; lane < kNetLanes; ++lane) {
    const int places = kDepth + (has_landing(lane) ? 1 : 0);
    lane_start_[lane + 1] =
        lane_start_[lane] +
        static_cast<std::size_t>(slot_bytes(lane) + kLeadBytes) * static_cast<std::size_t>(places);
  }
}

std::int64_t NetLayout::slot_bytes(int lane) const {
  return lane == kNoticeLane ? kNoticeBytes : slot_bytes_[lane_class(lane)];
}

void NetTransport::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t(kPage));
}

NetTransport::NetTransport(const NetPlace& place)
    : layout_(place.bootstrap->world()),
      traits_{place.kind->name, kDepth, layout_.slot_bytes(0), false, true},
      slots_(page_aligned(layout_.size_bytes())),
      staging_(page_aligned(layout_.size_bytes())) {
  const auto world = static_cast<std::size_t>(place.bootstrap->world());
  CHECK_EQ(place.reaches.size(), world);
  outgoing_.resize(world * kNetLanes);
  incoming_.resize(world * kNetLanes);
  peers_.resize(world);
  for (std::size_t peer = 0; peer < world; ++peer) peers_[peer].reached = place.reaches[peer];
  wire_ = place.kind->make({.bootstrap = place.bootstrap,
                            .reaches = place.reaches,
                            .layout = &layout_,
                            .slots = slots_.get(),
                            .staging = staging_.get(),
                            .sink = this,
                            .argument = place.argument});
}

NetTransport::~NetTransport() = default;

Sent NetTransport::send(int peer, int lane, std::uint64_t flag, const std::byte* data,
                        std::int64_t size_bytes, Source source) {
  Outgoing& out = outgoing_[index(peer, lane)];
  const int place = static_cast<int>(out.sent % kDepth);
  if (out.sent - out.credited == kDepth || out.busy[place]) return {};
  Sent sent;
  sent.exposed = worth_exposing(peer, lane, size_bytes, source);
  const bool whole = sent.exposed && wire_->exposes() == Wire::Exposes::kWhole;
  sent.size_bytes = std::min(size_bytes, layout_.most_bytes(lane, whole));
  sent.sequence = ++out.sent;
  if (!sent.exposed) {
    std::byte* staged = staging_.get() + layout_.offset(peer, lane, place);
    if (sent.size_bytes > 0) std::memcpy(staged, data, static_cast<std::size_t>(sent.size_bytes));
    data = staged;
  }
  out.sequence[place] = sent.sequence;
  out.busy[place] = true;
  int& owed = incoming_[index(peer, lane)].owed;
  out.exposed[place] = sent.exposed;
  if (sent.exposed) ++borrowed_;
  const Wire::Posted posted = wire_->post({.peer = peer,
                                           .lane = lane,
                                           .place = place,
                                           .flag = flag,
                                           .data = data,
                                           .size = sent.size_bytes,
                                           .credits = std::exchange(owed, 0),
                                           .exposed_bytes = sent.exposed ? size_bytes : 0});
  if (posted == Wire::Posted::kSent) this->sent(peer, lane, place);
  if (lane != kNoticeLane) {
    counters_.sent_bytes += sent.size_bytes;
    if (!sent.exposed || posted == Wire::Posted::kCopied) counters_.staged_bytes += sent.size_bytes;
  }
  return sent;
}

bool NetTransport::worth_exposing(int peer, int lane, std::int64_t size_bytes,
                                  Source source) const {
  if (source == Source::kCopied || size_bytes < NetLayout::kOfferBytes) return false;
  const std::int64_t slot_bytes = layout_.slot_bytes(lane);
  if (wire_->exposes() == Wire::Exposes::kNothing || slot_bytes < NetLayout::kOfferBytes)
    return false;
  return size_bytes > slot_bytes || size_bytes >= wire_->offers_from(peer);
}

bool NetTransport::released(int peer, int lane, std::uint64_t sequence) {
  const Outgoing& out = outgoing_[index(peer, lane)];
  const std::size_t place = (sequence - 1) % kDepth;
  return out.sequence[place] != sequence || !out.busy[place];
}

bool NetTransport::peek(int peer, int lane, Message* message) {
  const Incoming& in = incoming_[index(peer, lane)];
  if (in.offers > 0) land_offers(peer, lane, true);
  const Incoming::Arrival& arrival = in.arrivals[in.taken % kDepth];
  if (arrival.state != Incoming::State::kHere) return false;
  message->flag = arrival.flag;
  message->size_bytes = arrival.size;
  message->data = arrival.data;
  return true;
}

void NetTransport::expect(int peer, int lane, const Wanted& now, const Wanted& then) {
  Incoming& in = incoming_[index(peer, lane)];
  in.now = now;
  in.then = then;
  if (in.offers > 0) land_offers(peer, lane, false);
}

void NetTransport::want_nothing() {
  for (Incoming& in : incoming_) in.now = in.then = {};
}

// Whatever is wanted and fits; and the oldest message, if it is looked for and nobody says where it
// is wanted.
void NetTransport::land_offers(int peer, int lane, bool looked_for) {
  Incoming& in = incoming_[index(peer, lane)];
  const Wanted* wanted = &in.now;
  std::int64_t before = 0;  // bytes of the messages before that are wanted there
  for (std::uint64_t sequence = in.taken; sequence < in.taken + kDepth; ++sequence) {
    const auto place = static_cast<int>(sequence % kDepth);
    Incoming::Arrival& arrival = in.arrivals[place];
    if (arrival.state == Incoming::State::kNone) return;
    if (wanted == &in.now && before > 0 && before == in.now.total_bytes) {
      wanted = &in.then;
      before = 0;
    }
    const std::int64_t end = before + arrival.size;
    if (arrival.state == Incoming::State::kOffered) {
      const bool fits = end <= wanted->ready_bytes;
      if (!fits && (!looked_for || sequence != in.taken || end <= wanted->total_bytes)) return;
      if (!fits && arrival.size > layout_.slot_bytes(lane)) {
        // Longer than anybody wants: whoever looks sees that, and that its flag is foreign.
        --in.offers;
        arrival.state = Incoming::State::kHere;
        return;
      }
      land(peer, lane, place, fits && wanted->target != nullptr ? wanted->target + before : nullptr,
           wanted->ready_bytes - before);
    }
    before = end;
  }
}

void NetTransport::land(int peer, int lane, int place, std::byte* target, std::int64_t room) {
  Incoming& in = incoming_[index(peer, lane)];
  Incoming::Arrival& arrival = in.arrivals[place];
  --in.offers;
  ++borrowed_;
  arrival.state = Incoming::State::kLanding;
  // Set before the wire is asked: the block may arrive at once.
  if (target == nullptr && in.landing < 0 && layout_.has_landing(lane)) {
    in.landing = place;
    target = slots_.get() + layout_.offset(peer, lane, NetLayout::kLanding);
    room = arrival.size;
  }
  std::byte* slot = slots_.get() + layout_.offset(peer, lane, place);
  arrival.data = target != nullptr ? target : slot;
  if (!wire_->land(peer, lane, place, target, room)) {
    arrival.data = slot;
  } else if (target != nullptr && in.landing != place) {
    counters_.landed_bytes += arrival.size;
  }
}

bool NetTransport::read(int, const Message&, std::int64_t, std::byte*, std::int64_t) {
  return false;
}

void NetTransport::release(int peer, int lane) {
  Incoming& in = incoming_[index(peer, lane)];
  const auto place = static_cast<int>(in.taken % kDepth);
  Incoming::Arrival& arrival = in.arrivals[place];
  arrival.state = Incoming::State::kNone;
  if (in.landing == place) in.landing = -1;
  ++in.taken;
  // What is wanted begins at the oldest unreleased message.
  Wanted& now = in.now;
  if (now.target != nullptr) now.target += std::min(arrival.size, now.ready_bytes);
  now.ready_bytes = std::max<std::int64_t>(now.ready_bytes - arrival.size, 0);
  now.total_bytes = std::max<std::int64_t>(now.total_bytes - arrival.size, 0);
  if (arrival.size > 0 && now.total_bytes == 0) now = std::exchange(in.then, {});
  // A farewell waits for the credit of its notice.
  if (++in.owed < (lane == kNoticeLane ? 1 : kCreditsAtOnce)) return;
  if (!peers_[static_cast<std::size_t>(peer)].broken) wire_->credit(peer, lane, in.owed);
  in.owed = 0;
}

void NetTransport::arrived(int peer, int lane, int place, std::uint64_t flag, std::int64_t size) {
  Incoming::Arrival& arrival = incoming_[index(peer, lane)].arrivals[place];
  ++events_;
  if (lane != kNoticeLane) counters_.received_bytes += size;
  if (arrival.state == Incoming::State::kLanding) {
    --borrowed_;
    arrival.state = Incoming::State::kHere;
    return;
  }
  CHECK_LE(size, layout_.slot_bytes(lane));
  CHECK(arrival.state == Incoming::State::kNone);
  arrival = {flag, size, slots_.get() + layout_.offset(peer, lane, place), Incoming::State::kHere};
}

// The oldest message goes where it is wanted at once; others may turn out to be wanted elsewhere.
void NetTransport::brought(int peer, int lane, int place, std::uint64_t flag,
                           std::span<const std::byte> block, int credits) {
  if (credits > 0) credited(peer, lane, credits);
  const std::int64_t size = std::ssize(block);
  CHECK_LE(size, layout_.slot_bytes(lane));
  Incoming& in = incoming_[index(peer, lane)];
  Incoming::Arrival& arrival = in.arrivals[place];
  CHECK(arrival.state == Incoming::State::kNone);
  const bool oldest = place == static_cast<int>(in.taken % kDepth);
  std::byte* room = oldest && in.now.target != nullptr && size <= in.now.ready_bytes
                        ? in.now.target
                        : slots_.get() + layout_.offset(peer, lane, place);
  if (size > 0) std::memcpy(room, block.data(), block.size());
  ++events_;
  if (lane != kNoticeLane) counters_.received_bytes += size;
  arrival = {flag, size, room, Incoming::State::kHere};
}

void NetTransport::offered(int peer, int lane, int place, std::uint64_t flag, std::int64_t size) {
  ++events_;
  Incoming& in = incoming_[index(peer, lane)];
  Incoming::Arrival& arrival = in.arrivals[place];
  CHECK(arrival.state == Incoming::State::kNone);
  CHECK_LE(size, layout_.most_bytes(lane, wire_->exposes() == Wire::Exposes::kWhole));
  arrival = {flag, size, slots_.get() + layout_.offset(peer, lane, place),
             Incoming::State::kOffered};
  ++in.offers;
  if (in.now.ready_bytes > 0) land_offers(peer, lane, false);
}

void NetTransport::credited(int peer, int lane, int count) {
  ++events_;
  Outgoing& out = outgoing_[index(peer, lane)];
  out.credited += static_cast<std::uint64_t>(count);
  CHECK_LE(out.credited, out.sent);
}

void NetTransport::sent(int peer, int lane, int place) {
  ++events_;
  Outgoing& out = outgoing_[index(peer, lane)];
  out.busy[place] = false;
  if (std::exchange(out.exposed[place], false)) --borrowed_;
}

void NetTransport::broken(int peer, const std::string& why) {
  Peer& state = peers_[static_cast<std::size_t>(peer)];
  if (state.broken) return;
  state.broken = true;
  if (!state.leaves && broken_.peer < 0) broken_ = {peer, why};
}

void NetTransport::tell(std::uint64_t kind, std::span<const std::byte> text, Urgency urgency) {
  CHECK_LE(static_cast<std::int64_t>(text.size()), NetLayout::kNoticeBytes);
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    const Peer& state = peers_[static_cast<std::size_t>(peer)];
    if (!state.reached || state.broken || state.leaves) continue;
    const Outgoing& out = outgoing_[index(peer, kNoticeLane)];
    if (urgency == Urgency::kRoutine && out.sent - out.credited >= kRoutineNotices) {
      wire_->probe(peer);
      continue;
    }
    // No place left: the peer hears nothing at all, and its own deadline is what ends it.
    (void)send(peer, kNoticeLane, kind, text.data(), static_cast<std::int64_t>(text.size()),
               Source::kCopied);
  }
}

void NetTransport::hear(const Listener& listener) {
  Message message;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (!peers_[static_cast<std::size_t>(peer)].reached) continue;
    while (peek(peer, kNoticeLane, &message)) {
      listener(peer, message.flag, {message.data, static_cast<std::size_t>(message.size_bytes)});
      release(peer, kNoticeLane);
    }
  }
}

bool NetTransport::settled() const {
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    const Peer& state = peers_[static_cast<std::size_t>(peer)];
    if (!state.reached || state.broken) continue;
    const Outgoing& out = outgoing_[index(peer, kNoticeLane)];
    if (out.credited != out.sent) return false;
  }
  return true;
}

}  // namespace sinew::comm
