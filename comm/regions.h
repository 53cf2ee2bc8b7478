// Regions: the symmetric allocations that this rank and its peers map, so that an address in one
// can be handed to a peer as (region, offset) and read there. Shared by a communicator and
// everything split from it.
//
// Threads: one thread at a time (those of one rank's communicators).
// Invariant: region numbers are given in the order of the collective `add` calls of one rank's
// communicators; peers identify a region by its key, which its creators agreed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/memory.h"

namespace sinew::comm {

class Regions {
 public:
  struct Place {
    std::uint64_t key = 0;  // 0: in no region
    std::uint64_t offset = 0;
  };

  // views[i] is what rank origins[i] (numbered in the communicator everything was split from)
  // allocated.
  void add(std::uint64_t key, int own_origin, std::vector<int> origins, std::vector<Mapping> views);
  void remove(const std::byte* own_data);

  // 1, 2, ... : this rank's part of a new region's key.
  [[nodiscard]] std::uint64_t next_number() { return ++numbers_; }
  [[nodiscard]] bool empty() const { return regions_.empty(); }
  // Whether any was ever added: unlike empty(), alike on all ranks, since they add together but may
  // remove at different times.
  [[nodiscard]] bool ever_used() const { return numbers_ > 0; }
  // Whether [data, data + size_bytes) is this rank's part of a region that peer_origin maps.
  [[nodiscard]] Place find(const std::byte* data, std::int64_t size_bytes, int peer_origin) const;
  // Where peer_origin's [offset, offset + size_bytes) is mapped here; null when it is not.
  [[nodiscard]] const std::byte* resolve(int peer_origin, Place place,
                                         std::int64_t size_bytes) const;

 private:
  struct Region {
    std::uint64_t key;
    const std::byte* own;
    std::size_t size_bytes;
    std::vector<int> origins;
    std::vector<Mapping> views;
    [[nodiscard]] const Mapping* view_of(int origin) const;
  };
  std::vector<Region> regions_;
  std::uint64_t numbers_ = 0;
};

}  // namespace sinew::comm
