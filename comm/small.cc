#include "comm/small.h"

#include <new>

namespace sinew::comm {

std::size_t SmallBoxes::size_bytes(int world) {
  return sizeof(Box) * kBoxes * static_cast<std::size_t>(world);
}

SmallBoxes::SmallBoxes(std::byte* memory, int rank, int world)
    : boxes_(std::launder(reinterpret_cast<Box*>(memory))), rank_(rank), world_(world) {}

// A peer's box of a call shows that call's number or a later one; numbers are the low halves of
// call numbers and may wrap.
bool SmallBoxes::all_have_begun(std::uint64_t needed) {
  const std::uint32_t number = number_in(flags_[needed % kBoxes]);
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    const Box& theirs = boxes_[static_cast<std::size_t>(peer) * kBoxes + needed % kBoxes];
    const std::uint32_t shown =
        number_in(theirs.flag.load(std::memory_order_acquire));  // meets open()
    if (static_cast<std::int32_t>(shown - number) < 0) {
      waits_for_ = peer;
      return false;
    }
  }
  all_began_ = needed;
  return true;
}

// The oldest call that all must have begun before the next box may be written is call_ + 2 -
// kBoxes. A look costs a cache miss per peer; one at a later call, where it succeeds, saves those
// of the calls between.
bool SmallBoxes::look_who_began() {
  const std::uint64_t oldest = call_ + 2 - kBoxes;
  return all_have_begun(oldest + kBoxes / 2) || all_have_begun(oldest);
}

}  // namespace sinew::comm
