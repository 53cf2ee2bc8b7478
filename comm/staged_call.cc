// Engine's staged calls: large blocking calls on ordinary memory of one host's processes that share
// cores, through the tiles of stage.h. Compared with messages between pairs of ranks, what all need
// is put once instead of once per reader, nobody asks the kernel to read another process's memory
// (0.3 us per page), and the ranks meet once per tile, whatever their number. 8 ranks on 2 cores of
// an EPYC of the Zen 4 kind, medians without the stage over those with it, 64 KiB, 256 KiB, 1 MiB,
// 4 MiB: all_gather 1.10 1.14 1.19 1.28, reduce_scatter 1.20 1.21 1.32 1.21, all_reduce 0.99 1.24
// 0.95 1.14. With two ranks a core reductions lose by it (bench/README.md), and go as messages,
// save large ones of two ranks. All_to_all lost (below 0.8) or was even, and goes as it did; so did
// broadcast while all met in every round: now the others wait for the root alone.
//
// A plain store into lines that another core has read fetches each of them back first: putting 64
// KiB takes 7 us where the cores share a third-level cache and 28 us where they do not, and which
// of the two holds of a virtual machine's processors changes by itself. Stores past the cache
// take 2.6 us, and the reader then 5.7 instead of 1.5 or 3.8: alike in the first case, a quarter in
// the second. So what another core reads is put past the cache, and what a rank on this very core
// reads plainly (1.2 us and as much to read).
//
// What is done is the schedule `two_shot` of all_reduce and `direct` of the others, with the sums
// over the ranks in increasing order: the same bits as the executor's run of them.
#include <algorithm>

#include "comm/engine.h"
#include "kernels/reduce.h"
#include "kernels/streaming.h"
#include "sched/base/partition.h"

namespace sinew::comm {

namespace {

using sched::Collective;

// Multiples keep every element type whole and every part at a cache line.
constexpr std::int64_t kLine = 64;

// Below, the meetings cost as much as the messages they stand in for.
constexpr std::int64_t kStagedBytes = 64 << 10;
// From here on all_reduce of two ranks gains by it, with a core each too: each phase reads memory
// while it writes, which the four of the messages (put, sum, put, take) do in turns. By turns of
// launches, 16 and 64 MiB took 3.0 and 12.9 ms where messages took 3.9 and 17.0, 2.2 and 10.8
// instead of 3.6 and 16.5 where the cores shared no cache; 8 MiB the same, three and four ranks
// more.
constexpr std::int64_t kStagedPairBytes = 16 << 20;

void copy(std::byte* target, const std::byte* source, std::int64_t size, kernels::Stores stores) {
  if (target != source) kernels::copy(target, source, size, stores);
}

}  // namespace

// Of the full vector.
bool Engine::may_be_staged(const Ask& ask, std::uint16_t algorithm) const {
  // A rank with a core to itself gets on better with each peer by itself than by meeting all; so it
  // does with one other on its core where what it reads of each is a part: see README.md in bench.
  const bool reads_parts = ask.op == Collective::kAllReduce || ask.op == Collective::kReduceScatter;
  const int alone = reads_parts ? 2 * machine_.cores : machine_.cores;
  const std::int64_t full = full_bytes(ask.op, ask.count, ask.dtype, world_);
  const bool large_pair =
      world_ == 2 && ask.op == Collective::kAllReduce && full >= kStagedPairBytes;
  if (stage_ == nullptr || ask.counts != nullptr || (world_ <= alone && !large_pair)) return false;
  const auto op = static_cast<std::size_t>(ask.op);
  if (algorithm != (ask.op == Collective::kBroadcast ? direct_[op] : symmetric_[op])) return false;
  return full >= kStagedBytes;
}

void Engine::run_staged(const CallInfo& call, const Ask& ask, std::uint64_t flag) {
  // A call that was announced has met once: its flag has been shown as it is.
  const std::uint32_t held = flag != 0 ? 1 : 0;
  if (flag == 0) flag = announce(call);
  Meetings meetings{.call = call, .number = calls_, .flag = flag, .held = held};
  const std::int64_t full = full_bytes(ask.op, ask.count, ask.dtype, world_);
  const kernels::Stores stores = kernels::stores_for(2 * full * world_);
  std::int64_t sent_bytes = 0;
  switch (ask.op) {
    case Collective::kAllReduce:
      sent_bytes = stage_sums(meetings, ask, stores);
      break;
    case Collective::kAllGather:
      sent_bytes = stage_whole(meetings, ask, stores);
      break;
    case Collective::kReduceScatter:
      sent_bytes = stage_parts(meetings, ask);
      break;
    case Collective::kBroadcast:
      sent_bytes = stage_from_root(meetings, ask, stores);
      break;
    case Collective::kReduce:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kBarrier:
      break;
  }
  block_->roster->end(meetings.number);
  count_call(ask.op, ask.count, full, sent_bytes);
  ++counters_.collective[static_cast<std::size_t>(ask.op)].through_stage;
}

// All ranks are in this round: what they put before it can be read.
void Engine::meet(Meetings& meetings) {
  SmallCall exchange = arrive(meetings);
  hear_all(exchange);
}

// What this rank put before it can be read.
Engine::SmallCall Engine::arrive(Meetings& meetings) {
  SmallCall exchange{.call = meetings.call,
                     .number = meetings.number,
                     .boxes = boxes_.get(),
                     .agreed = meetings.held > 0};
  // A box shows meetings of this call again and again: the flags must differ.
  const std::uint64_t flag = meetings.flag ^ (meetings.held * 0x9e3779b1U);
  ++meetings.held;
  open_box(exchange, flag, nullptr, 0);
  return exchange;
}

// How to write what one peer reads, or all (-1).
kernels::Stores Engine::stores_for_reader(int reader) const {
  const bool stays = reader < 0 ? std::ranges::all_of(on_my_core_, [](bool is) { return is; })
                                : bool{on_my_core_[static_cast<std::size_t>(reader)]};
  return stays ? kernels::Stores::kCached : kernels::Stores::kPastCache;
}

// Into the stage, for one peer to read, or for all (-1).
void Engine::put(std::byte* target, const std::byte* source, std::int64_t size, int reader) const {
  copy(target, source, size, stores_for_reader(reader));
}

// Each of these returns the bytes that the messages of the schedule it does would have sent.

// all_reduce. In each round every rank puts a tile, sums its part of all ranks' tiles, and takes
// the other ranks' sums of the tile before.
std::int64_t Engine::stage_sums(Meetings& meetings, const Ask& ask, kernels::Stores stores) {
  const auto element = static_cast<std::int64_t>(size_of(ask.dtype));
  const std::int64_t tile = stage_->tile_bytes() / element;
  const auto* input = static_cast<const std::byte*>(ask.input);
  auto* output = static_cast<std::byte*>(ask.output);
  for (std::int64_t at = 0; at - tile < ask.count; at += tile) {
    const std::int64_t count = std::clamp<std::int64_t>(ask.count - at, 0, tile);
    const Part own = partition(count, world_, rank_);
    for (int peer = 0; peer < world_; ++peer) {
      const Part theirs = partition(count, world_, peer);
      if (peer == rank_) continue;  // nobody else reads what this rank sums
      put(stage_->tile(rank_) + theirs.offset * element, input + (at + theirs.offset) * element,
          theirs.count * element, peer);
    }
    meet(meetings);
    if (count > 0) {
      for (int peer = 0; peer < world_; ++peer) {
        sources_[static_cast<std::size_t>(peer)] =
            (peer == rank_ ? input + at * element : stage_->tile(peer)) + own.offset * element;
      }
      sum_for_all(ask, output + (at + own.offset) * element, own.count, stores);
    }
    if (at > 0) {
      const std::int64_t before = at - tile;
      const std::int64_t summed = std::min(tile, ask.count - before);
      for (int step = 1; step < world_; ++step) {
        const int peer = (rank_ + step) % world_;
        const Part theirs = partition(summed, world_, peer);
        copy(output + (before + theirs.offset) * element, stage_->last_result(peer),
             theirs.count * element, stores);
      }
    }
    stage_->next_round();
  }
  const std::int64_t own = partition(ask.count, world_, rank_).count;
  return (ask.count - own + own * (world_ - 1)) * element;
}

// Of sources_, into the own output and where the others read it; in one pass where both lie past
// the cache.
void Engine::sum_for_all(const Ask& ask, std::byte* output, std::int64_t count,
                         kernels::Stores stores) {
  std::byte* const shared = stage_->result(rank_);
  void* const targets[] = {shared, output};
  if (stores == kernels::Stores::kPastCache && stores_for_reader(-1) == stores &&
      reduce_past_cache(ask, targets, count))
    return;
  const std::int64_t size = count * static_cast<std::int64_t>(size_of(ask.dtype));
  tile_.resize(std::max(tile_.size(), static_cast<std::size_t>(size)));
  reduce_sources(ask, tile_.data(), count);
  put(shared, tile_.data(), size, -1);
  copy(output, tile_.data(), size, stores);
}

// all_gather: what a rank puts, all others take.
std::int64_t Engine::stage_whole(Meetings& meetings, const Ask& ask, kernels::Stores stores) {
  const std::int64_t part = ask.count * static_cast<std::int64_t>(size_of(ask.dtype));
  const auto* input = static_cast<const std::byte*>(ask.input);
  auto* output = static_cast<std::byte*>(ask.output);
  for (std::int64_t at = 0; at < part; at += stage_->tile_bytes()) {
    const std::int64_t size = std::min(stage_->tile_bytes(), part - at);
    put(stage_->tile(rank_), input + at, size, -1);
    meet(meetings);
    for (int step = 0; step < world_; ++step) {
      const int peer = (rank_ + step) % world_;
      const std::byte* source = peer == rank_ ? input + at : stage_->tile(peer);
      copy(output + peer * part + at, source, size, stores);
    }
    stage_->next_round();
  }
  return part * (world_ - 1);
}

// broadcast: what the root puts, all others take. They wait for nobody else, save in the first
// round, which shows that all have read what was put before this call; the root goes on when all
// have come, and so have read its tile before.
std::int64_t Engine::stage_from_root(Meetings& meetings, const Ask& ask, kernels::Stores stores) {
  const std::int64_t part = ask.count * static_cast<std::int64_t>(size_of(ask.dtype));
  const auto* input = static_cast<const std::byte*>(ask.input);
  auto* output = static_cast<std::byte*>(ask.output);
  const bool is_root = rank_ == ask.root;
  for (std::int64_t at = 0; at < part; at += stage_->tile_bytes()) {
    const std::int64_t size = std::min(stage_->tile_bytes(), part - at);
    if (is_root) put(stage_->tile(rank_), input + at, size, -1);
    SmallCall exchange = arrive(meetings);
    if (is_root || at == 0) {
      hear_all(exchange);
    } else {
      await_box(exchange, ask.root, 0);
    }
    copy(output + at, is_root ? input + at : stage_->tile(ask.root), size, stores);
    stage_->next_round();
  }
  return is_root ? part * (world_ - 1) : 0;
}

// reduce_scatter: a tile has a piece for each rank, which sums what all put for it.
std::int64_t Engine::stage_parts(Meetings& meetings, const Ask& ask) {
  const auto element = static_cast<std::int64_t>(size_of(ask.dtype));
  const std::int64_t part = ask.count * element;
  const std::int64_t piece = stage_->tile_bytes() / world_ / kLine * kLine;
  const auto* input = static_cast<const std::byte*>(ask.input);
  auto* output = static_cast<std::byte*>(ask.output);
  for (std::int64_t at = 0; at < part; at += piece) {
    const std::int64_t size = std::min(piece, part - at);
    for (int peer = 0; peer < world_; ++peer) {
      if (peer != rank_)
        put(stage_->tile(rank_) + peer * piece, input + peer * part + at, size, peer);
    }
    meet(meetings);
    for (int peer = 0; peer < world_; ++peer) {
      sources_[static_cast<std::size_t>(peer)] =
          peer == rank_ ? input + rank_ * part + at : stage_->tile(peer) + rank_ * piece;
    }
    reduce_sources(ask, output + at, size / element);
    stage_->next_round();
  }
  return part * (world_ - 1);
}

}  // namespace sinew::comm
