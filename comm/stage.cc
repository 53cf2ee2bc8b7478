#include "comm/stage.h"

#include <algorithm>
#include <bit>

#include "sched/base/check.h"

namespace sinew::comm {

namespace {

// All tiles together take a small part of a third-level cache; one leaves most of a second-level
// cache (1 MiB) to what is read and written beside it, and is worth a meeting: copying 128 KiB
// takes 5 us.
constexpr std::int64_t kBudgetBytes = 4 << 20;
constexpr std::int64_t kMostTileBytes = 128 << 10;
constexpr std::int64_t kLeastTileBytes = 4 << 10;
constexpr std::int64_t kLine = 64;

// A line more than the part of a tile: so the ranks' tiles do not all lie at one place of a page,
// whose lines a cache of few ways could not hold together.
std::int64_t result_bytes(std::int64_t tile_bytes, int world) {
  return (tile_bytes / world + 2 * kLine) / kLine * kLine;
}

}  // namespace

std::int64_t Stage::tile_bytes(int world) {
  const auto each = static_cast<std::uint64_t>(kBudgetBytes / (kTurns * world));
  return std::clamp(static_cast<std::int64_t>(std::bit_floor(each)), kLeastTileBytes,
                    kMostTileBytes);
}

std::size_t Stage::size_bytes(int world) {
  const std::int64_t tile = tile_bytes(world);
  return static_cast<std::size_t>(kTurns * world * (tile + result_bytes(tile, world)));
}

Stage::Stage(std::byte* memory, int world)
    : memory_(memory),
      tile_bytes_(tile_bytes(world)),
      result_bytes_(sinew::comm::result_bytes(tile_bytes_, world)) {
  CHECK(memory != nullptr);
}

}  // namespace sinew::comm
