// Engine's small calls of all_to_all_v, where each rank has sizes of its own and knows nobody
// else's: whether all have little must be found out on the way. A rank whose whole input fits into
// its box puts it there behind a table of where each peer's part begins; any other opens an empty
// one. Who finds an empty box, or has one, takes the lanes, and so do then all: a rank with much
// waits for nobody to know that, and one with little sees all boxes.
//
// Each pair's two sizes are compared as the executor compares them.
#include <array>
#include <cstring>

#include "comm/engine.h"

namespace sinew::comm {

namespace {

// With more the table alone takes a large part of a box.
constexpr int kMostParcelledRanks = 64;

using Offset = std::uint16_t;
static_assert(SmallBoxes::kPayloadBytes <= 0xffff);

std::int64_t table_bytes(int world) {
  return static_cast<std::int64_t>(sizeof(Offset)) * (world + 1);
}

Offset offset_in(std::span<const std::byte> parcel, int index) {
  Offset offset = 0;
  std::memcpy(&offset, parcel.data() + static_cast<std::size_t>(index) * sizeof offset,
              sizeof offset);
  return offset;
}

void copy(std::byte* target, const std::byte* source, std::int64_t size) {
  if (size > 0) std::memcpy(target, source, static_cast<std::size_t>(size));
}

}  // namespace

// Alike on all ranks.
bool Engine::may_be_parcelled(const Ask& ask, std::uint16_t algorithm) const {
  return ask.output_counts != nullptr && options_.small_calls && world_ <= kMostParcelledRanks &&
         algorithm == direct_[static_cast<std::size_t>(ask.op)];
}

void Engine::run_parcelled(const CallInfo& call, const Ask& ask) {
  const std::uint64_t flag = sign(call);
  SmallCall small{.call = call, .number = calls_, .boxes = boxes_.get()};
  std::array<std::byte, SmallBoxes::kPayloadBytes> parcel;
  const std::int64_t size = pack_parcel(ask, parcel.data());
  await_own_box(small);
  boxes_->open_sized(flag, parcel.data(), size);
  tell_opened(small);
  if (size == 0 || !hear_parcels(small)) {
    wait(begin(call, plan_of(call, ask), ask, flag));
    return;
  }
  take_parcels(small, ask);
  block_->roster->end(small.number);
  const auto element = static_cast<std::int64_t>(size_of(ask.dtype));
  count_call(ask.op, ask.count, ask.count * element, (ask.count - ask.counts[rank_]) * element);
}

// The table and the input behind it; returns their size, or 0 where they do not fit into a box.
std::int64_t Engine::pack_parcel(const Ask& ask, std::byte* parcel) const {
  const auto element = static_cast<std::int64_t>(size_of(ask.dtype));
  const std::int64_t table = table_bytes(world_);
  if (ask.count > (SmallBoxes::kPayloadBytes - table) / element) return 0;
  std::int64_t begin = 0;
  for (int peer = 0; peer <= world_; ++peer) {
    const auto offset = static_cast<Offset>(begin);
    std::memcpy(parcel + static_cast<std::size_t>(peer) * sizeof offset, &offset, sizeof offset);
    if (peer < world_) begin += ask.counts[peer] * element;
  }
  copy(parcel + table, static_cast<const std::byte*>(ask.input), begin);
  return table + begin;
}

// Whether all peers have little.
bool Engine::hear_parcels(SmallCall& small) {
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    if (!boxes_->holds(peer)) await_box(small, peer, eager_polls(peer, world_));
    if (boxes_->sized_payload(peer).empty()) return false;
  }
  boxes_->all_began();
  return true;
}

void Engine::take_parcels(const SmallCall& small, const Ask& ask) {
  const auto element = static_cast<std::int64_t>(size_of(ask.dtype));
  const std::int64_t table = table_bytes(world_);
  auto* target = static_cast<std::byte*>(ask.output);
  const auto* own = static_cast<const std::byte*>(ask.input);
  for (int before = 0; before < rank_; ++before) own += ask.counts[before] * element;
  for (int peer = 0; peer < world_; ++peer) {
    const std::int64_t size = ask.output_counts[peer] * element;
    if (peer == rank_) {
      copy(target, own, size);
    } else {
      const std::span<const std::byte> parcel = boxes_->sized_payload(peer);
      const std::int64_t begin = offset_in(parcel, rank_);
      if (offset_in(parcel, rank_ + 1) - begin != size) {
        raise_mismatch(Pending{.small = &small}, peer, kOtherCount);
      }
      copy(target, parcel.data() + table + begin, size);
    }
    target += size;
  }
}

}  // namespace sinew::comm
