// What a caller may get wrong in one call, found before anything is sent.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "comm/engine.h"
#include "sched/base/error.h"

namespace sinew::comm {

namespace {

struct Extent {
  const std::byte* begin;
  std::int64_t size;
  [[nodiscard]] bool overlaps(const Extent& other) const {
    return size > 0 && other.size > 0 && begin < other.begin + other.size &&
           other.begin < begin + size;
  }
};

void check_pointer(const char* name, const void* pointer, std::int64_t bytes) {
  if (pointer == nullptr && bytes > 0) {
    throw UsageError(fmt::format(
        "{} is null but {} bytes are expected there; only a count of 0 allows null", name, bytes));
  }
}

}  // namespace

void Engine::check(const Ask& ask) const {
  if (ask.count < 0 && ask.counts == nullptr)
    throw UsageError(fmt::format("count {} is negative; legal values: 0 and more", ask.count));
  if (ask.root < 0 || ask.root >= world_) {
    throw UsageError(
        fmt::format("root {} is no rank; legal values: 0 to {}", ask.root, world_ - 1));
  }
  if (ask.factor != nullptr) {
    const sched::Contract contract{.op = ask.op, .world = world_, .root = ask.root};
    if (!contract.reduces() || ask.reduce != ReduceOp::kSum) {
      throw UsageError(
          fmt::format("{} of {} with a factor; legal with one: the reduction sum of all_reduce, "
                      "reduce_scatter and reduce",
                      sched::name_of(ask.op), name_of(ask.reduce)));
    }
  }
  for (const std::size_t given : {ask.parts, ask.output_parts}) {
    if (given != Ask::kNoParts && given != static_cast<std::size_t>(world_)) {
      throw UsageError(
          fmt::format("{} counts were given; legal is one per rank: {}", given, world_));
    }
  }
  check_size(ask);
  if (ask.counts != nullptr) return check_parts(ask);
  if (ask.op != sched::Collective::kBarrier && ask.count != 0) check_buffers(ask);
}

// Every size below, in bytes and of all ranks together, must fit 64 bits.
void Engine::check_size(const Ask& ask) const {
  const std::int64_t most =
      std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(size_of(ask.dtype));
  const auto refuse = [&](std::int64_t count, std::int64_t legal) {
    throw UsageError(
        fmt::format("count {} of {} on {} ranks takes more than 2^63 bytes; legal "
                    "values: 0 to {}",
                    count, name_of(ask.dtype), world_, legal));
  };
  if (ask.counts == nullptr) {
    if (ask.count > most / world_) refuse(ask.count, most / world_);
    return;
  }
  for (const std::int64_t* const counts : {ask.counts, ask.output_counts}) {
    if (counts == nullptr) continue;
    std::int64_t left = most;
    for (int rank = 0; rank < world_; ++rank) {
      if (counts[rank] > left) refuse(counts[rank], left);
      left -= std::max<std::int64_t>(counts[rank], 0);
    }
  }
}

void Engine::check_buffers(const Ask& ask) const {
  const sched::Contract contract{.op = ask.op, .world = world_, .root = ask.root};
  const std::int64_t part = ask.count * static_cast<std::int64_t>(size_of(ask.dtype));
  // Whose input, output are the parts of all ranks.
  const bool spreads = ask.op == sched::Collective::kReduceScatter ||
                       ask.op == sched::Collective::kScatter ||
                       ask.op == sched::Collective::kAllToAll;
  const bool collects = ask.op == sched::Collective::kAllGather ||
                        ask.op == sched::Collective::kGather ||
                        ask.op == sched::Collective::kAllToAll;
  const bool reads = contract.has_input(rank_, rank_ % contract.blocks());
  const bool writes = contract.has_output(rank_, rank_ % contract.blocks());
  const Extent input{static_cast<const std::byte*>(ask.input),
                     reads ? part * (spreads ? world_ : 1) : 0};
  const Extent output{static_cast<const std::byte*>(ask.output),
                      writes ? part * (collects ? world_ : 1) : 0};
  check_pointer("input", ask.input, input.size);
  check_pointer("output", ask.output, output.size);
  if (!input.overlaps(output)) return;
  // In place the smaller one is this rank's part of the larger one.
  const std::int64_t own = rank_ * part;
  const std::int64_t input_at = collects && !spreads ? own : 0;
  const std::int64_t output_at = spreads && !collects ? own : 0;
  if (input.begin - input_at == output.begin - output_at) return;
  throw UsageError(
      fmt::format("{}: input and output overlap in a way that is not the operation's in-place form",
                  sched::name_of(ask.op)));
}

// Blocks of different sizes, one after the other in rank order.
void Engine::check_parts(const Ask& ask) const {
  const sched::Contract contract{.op = ask.op, .world = world_, .root = ask.root};
  const auto size = static_cast<std::int64_t>(size_of(ask.dtype));
  const auto sum_before = [&](const std::int64_t* counts, int end) {
    std::int64_t sum = 0;
    for (int rank = 0; rank < end; ++rank) {
      if (counts[rank] < 0) {
        throw UsageError(fmt::format("count {} of rank {} is negative; legal values: 0 and more",
                                     counts[rank], rank));
      }
      sum += counts[rank];
    }
    return sum;
  };
  const bool exchanges = ask.output_counts != nullptr;
  const bool collects =
      ask.op == sched::Collective::kAllGather || ask.op == sched::Collective::kGather;
  const std::int64_t whole = sum_before(ask.counts, world_) * size;
  const std::int64_t output_whole =
      exchanges ? sum_before(ask.output_counts, world_) * size : whole;
  if (exchanges && ask.counts[rank_] != ask.output_counts[rank_]) {
    throw UsageError(fmt::format(
        "all_to_all_v: rank {} sends itself {} elements and expects {}; legal are equal counts",
        rank_, ask.counts[rank_], ask.output_counts[rank_]));
  }
  const std::int64_t part = ask.counts[rank_] * size;
  const std::int64_t before = sum_before(ask.counts, rank_) * size;
  const bool reads = contract.has_input(rank_, rank_);
  const bool writes = contract.has_output(rank_, rank_);
  const Extent input{static_cast<const std::byte*>(ask.input),
                     reads ? (collects ? part : whole) : 0};
  const Extent output{static_cast<const std::byte*>(ask.output),
                      writes ? (collects || exchanges ? output_whole : part) : 0};
  check_pointer("input", ask.input, input.size);
  check_pointer("output", ask.output, output.size);
  if (!input.overlaps(output)) return;
  const std::byte* const input_whole = input.begin - (collects ? before : 0);
  const std::byte* const output_begin = output.begin - (collects ? 0 : before);
  if (!exchanges && input_whole == output_begin) return;
  throw UsageError(fmt::format(
      "{}_v: input and output overlap in a way that is not the operation's in-place form",
      sched::name_of(ask.op)));
}

}  // namespace sinew::comm
