// LaunchShape: how many threads run a kernel. Plain numbers, so that host headers need no CUDA
// type.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinew::device {

struct Extent {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  [[nodiscard]] constexpr std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

// kAllBlocks: blocks wait for blocks of a peer's grid, so all must be able to run at once; a grid
// that does not fit an empty device is refused.
enum class Residency : std::uint8_t { kAny, kAllBlocks };

struct LaunchShape {
  Extent grid = {};
  Extent block = {};
  std::size_t shared_bytes = 0;  // dynamic shared memory of one block
  Residency residency = Residency::kAny;
};

}  // namespace sinew::device
