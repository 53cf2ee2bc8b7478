// Engine's calls on symmetric memory: when every rank's buffers lie in blocks that all ranks map,
// no message carries them. Each rank reads its share of all inputs in one pass and stores the
// result where it is wanted, which is the traffic that no algorithm can avoid: every input read
// once, every output written once.
//
// What is done is the schedule `two_shot` of all_reduce and `direct` of the others, with the sums
// over the ranks in increasing order: the same bits as the executor's run of them. One exchange of
// boxes (small.h) says where the buffers are and that all ranks are in the call, a second that all
// are done.
//
// Whether the peers' buffers are symmetric is not known before the first exchange. If some are not,
// all ranks see that alike and the call goes on through the stage, or as the schedule.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "comm/engine.h"
#include "kernels/reduce.h"
#include "kernels/streaming.h"
#include "sched/base/partition.h"

namespace sinew::comm {

namespace {

using sched::Collective;

// Below this the two exchanges cost as much as the messages they save.
constexpr std::int64_t kLeastBytes = 16 << 10;

// What is reduced before it is copied to its places: fits the second-level cache (1 MiB) beside as
// much of eight sources, and takes long enough (3 us) to hide what a start costs.
constexpr std::int64_t kTileBytes = 64 << 10;

bool needs_input(Collective op) { return op != Collective::kAllGather; }
bool needs_output(Collective op) { return op != Collective::kReduceScatter; }

// A rank's buffers as its box shows them; key 0: not symmetric.
struct Places {
  Regions::Place input;
  Regions::Place output;
};

// [data, data + size) as every rank of `origins` can find it.
Regions::Place place_for_all(const Regions& regions, const std::vector<int>& origins,
                             const void* data, std::int64_t size) {
  Regions::Place place;
  for (const int origin : origins) {
    place = regions.find(static_cast<const std::byte*>(data), size, origin);
    if (place.key == 0) return {};
  }
  return place;
}

// Whether a cache line of one is one of all.
bool lie_alike(std::span<void* const> targets) {
  const auto place = [](const void* target) {
    return reinterpret_cast<std::uintptr_t>(target) % 64;
  };
  return std::ranges::all_of(
      targets, [&](const void* target) { return place(target) == place(targets.front()); });
}

// The closing exchange's flag: the call's number, so that errors can name the call, and another
// signature than the opening one's.
std::uint64_t closing(std::uint64_t flag) { return flag ^ 0xffffffffU; }

}  // namespace

bool Engine::may_be_symmetric(const Ask& ask, std::uint16_t algorithm) const {
  return regions_->ever_used() && world_ > 1 && options_.small_calls && ask.counts == nullptr &&
         algorithm == symmetric_[static_cast<std::size_t>(ask.op)] &&
         full_bytes(ask.op, ask.count, ask.dtype, world_) >= kLeastBytes;
}

void Engine::run_symmetric(const CallInfo& call, const Ask& ask) {
  const std::int64_t part = ask.count * static_cast<std::int64_t>(size_of(ask.dtype));
  const std::int64_t input_size = ask.op == Collective::kReduceScatter ? part * world_ : part;
  const std::int64_t output_size = ask.op == Collective::kAllGather ? part * world_ : part;
  const std::uint64_t flag = announce(call);
  SmallCall opening{.call = call, .number = calls_, .boxes = boxes_.get()};
  Places mine;
  if (needs_input(ask.op)) mine.input = place_for_all(*regions_, origins_, ask.input, input_size);
  if (needs_output(ask.op))
    mine.output = place_for_all(*regions_, origins_, ask.output, output_size);
  open_box(opening, flag, &mine, sizeof mine);
  hear_all(opening);
  targets_.clear();
  for (int peer = 0; peer < world_; ++peer) {
    Places places = mine;
    if (peer != rank_) std::memcpy(&places, boxes_->payload(peer, sizeof places), sizeof places);
    if ((needs_input(ask.op) && places.input.key == 0) ||
        (needs_output(ask.op) && places.output.key == 0)) {
      if (may_be_staged(ask, call.algorithm)) return run_staged(call, ask, flag);
      wait(begin(call, plans_->get(call.algorithm, call.root), ask, flag));
      return;
    }
    sources_[static_cast<std::size_t>(peer)] =
        needs_input(ask.op) ? mapped(peer, places.input, input_size) : nullptr;
    targets_.push_back(needs_output(ask.op)
                           ? const_cast<std::byte*>(mapped(peer, places.output, output_size))
                           : nullptr);
  }
  const std::int64_t sent = move_symmetric(ask);
  SmallCall end{.call = call, .number = opening.number, .boxes = boxes_.get()};
  open_box(end, closing(flag), nullptr, 0);
  hear_all(end);
  block_->roster->end(opening.number);
  count_call(ask.op, ask.count, full_bytes(ask.op, ask.count, ask.dtype, world_), sent);
}

const std::byte* Engine::mapped(int peer, Regions::Place place, std::int64_t size) {
  const std::byte* data = regions_->resolve(origins_[static_cast<std::size_t>(peer)], place, size);
  if (data == nullptr) raise_unreadable({Fault::Kind::kUnmapped, peer, 0});
  return data;
}

// Moves this rank's share of the call; returns the bytes that the schedule would have sent.
std::int64_t Engine::move_symmetric(const Ask& ask) {
  const auto element = static_cast<std::int64_t>(size_of(ask.dtype));
  const std::int64_t full = full_bytes(ask.op, ask.count, ask.dtype, world_);
  const kernels::Stores stores = kernels::stores_for(2 * full * world_);
  switch (ask.op) {
    case Collective::kAllReduce: {
      const Part own = partition(ask.count, world_, rank_);
      reduce_to_all(ask, own.offset * element, own.count * element, stores);
      return full - own.count * element + own.count * element * (world_ - 1);
    }
    case Collective::kReduceScatter: {
      const std::int64_t part = ask.count * element;
      for (const void*& source : sources_)
        source = static_cast<const std::byte*>(source) + rank_ * part;
      reduce_sources(ask, ask.output, ask.count);
      return part * (world_ - 1);
    }
    case Collective::kAllGather: {
      const std::int64_t part = ask.count * element;
      spread(static_cast<const std::byte*>(ask.input), rank_ * part, part, stores);
      return part * (world_ - 1);
    }
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
    case Collective::kBarrier:
      break;
  }
  return 0;
}

// Bytes [offset, offset + size) of all inputs, reduced, into the same bytes of all outputs.
void Engine::reduce_to_all(const Ask& ask, std::int64_t offset, std::int64_t size,
                           kernels::Stores stores) {
  const bool streams = stores == kernels::Stores::kPastCache;
  for (void const*& source : sources_) source = static_cast<const std::byte*>(source) + offset;
  const auto element = static_cast<std::int64_t>(size_of(ask.dtype));
  if (streams) {
    std::vector<void*> targets;
    for (int step = 1; step <= world_; ++step)
      targets.push_back(targets_[static_cast<std::size_t>((rank_ + step) % world_)] + offset);
    if (reduce_past_cache(ask, targets, size / element)) return;
    tile_.resize(std::max(tile_.size(), static_cast<std::size_t>(kTileBytes)));
  }
  for (std::int64_t done = 0; done < size; done += kTileBytes) {
    const std::int64_t tile = std::min(kTileBytes, size - done);
    // A store past the cache must not read its line first, so the sum is made elsewhere.
    std::byte* sum = streams ? tile_.data() : static_cast<std::byte*>(ask.output) + offset + done;
    reduce_sources(ask, sum, tile / element);
    spread(sum, offset + done, tile, stores);
    for (void const*& source : sources_) source = static_cast<const std::byte*>(source) + tile;
  }
}

// In one pass, so that memory is read while it is written.
bool Engine::reduce_past_cache(const Ask& ask, std::span<void* const> targets, std::int64_t count) {
  if (ask.reduce == ReduceOp::kAvg || !lie_alike(targets)) return false;
  kernels::reduce_many_to(ask.reduce, ask.dtype, targets, sources_, count);
  return true;
}

// Copies to every rank's output at `offset`, beginning with the next rank's, so that the ranks do
// not all write to one.
void Engine::spread(const std::byte* data, std::int64_t offset, std::int64_t size,
                    kernels::Stores stores) {
  for (int step = 1; step <= world_; ++step) {
    std::byte* target = targets_[static_cast<std::size_t>((rank_ + step) % world_)] + offset;
    if (target != data) kernels::copy(target, data, size, stores);
  }
}

}  // namespace sinew::comm
