// What a caller may get wrong in one call, found before anything is sent.
#include <fmt/core.h>

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
  if (ask.count < 0)
    throw UsageError(fmt::format("count {} is negative; legal values: 0 and more", ask.count));
  if (ask.root < 0 || ask.root >= world_) {
    throw UsageError(
        fmt::format("root {} is no rank; legal values: 0 to {}", ask.root, world_ - 1));
  }
  const sched::Contract contract{.op = ask.op, .world = world_, .root = ask.root};
  if (ask.op == sched::Collective::kBarrier || ask.count == 0) return;
  const std::int64_t part = ask.count * static_cast<std::int64_t>(size_of(ask.dtype));
  const bool scatters = ask.op == sched::Collective::kReduceScatter;
  const bool gathers = ask.op == sched::Collective::kAllGather;
  const bool reads = contract.has_input(rank_, gathers ? rank_ : 0);
  const bool writes = contract.has_output(rank_, scatters ? rank_ : 0);
  const Extent input{static_cast<const std::byte*>(ask.input),
                     reads ? part * (scatters ? world_ : 1) : 0};
  const Extent output{static_cast<const std::byte*>(ask.output),
                      writes ? part * (gathers ? world_ : 1) : 0};
  check_pointer("input", ask.input, input.size);
  check_pointer("output", ask.output, output.size);
  if (!input.overlaps(output)) return;
  const std::byte* in_place_input = gathers ? output.begin + rank_ * part : output.begin;
  const std::byte* in_place_output = scatters ? input.begin + rank_ * part : input.begin;
  if (input.begin == in_place_input && !scatters) return;
  if (output.begin == in_place_output && !gathers) return;
  throw UsageError(
      fmt::format("{}: input and output overlap in a way that is not the operation's in-place form",
                  sched::name_of(ask.op)));
}

}  // namespace sinew::comm
