// Choice: which transport joins which pair of ranks. Ranks that can really open each other's memory
// form a host and use it; all other pairs use one kind of wire.
//
// Never does: open connections, or go by host names.
// Threads: collective, one thread per rank. Cost: a few exchanges of small blobs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/transport/wire.h"

namespace sinew::comm {

// The variable that stands in for the option `transport` where that is "auto".
inline constexpr const char* kTransportVariable = "SINEW_TRANSPORT";

struct TransportChoice {
  bool local = false;              // threads of one process
  std::vector<int> hosts;          // [world]: the lowest rank of each rank's host
  const WireKind* wire = nullptr;  // null: all ranks are on one host
  std::string argument;            // of the wire
};

// text: auto, local, shm, NAME or shm+NAME, NAME a wire, where NAME may go on with :DEVICE. NAME
// alone uses the wire also inside a host. Collective, except that UsageError is thrown before
// anything is exchanged. Throws Error, the same on all ranks, when a pair has no transport.
[[nodiscard]] TransportChoice choose_transport(Bootstrap& bootstrap, std::string_view text);

// What algorithms with levels make their groups of: the ranks of a host, where there are several
// hosts, numbered one after the other, that have equally many ranks; else 0.
[[nodiscard]] int ranks_per_host(const std::vector<int>& hosts);

[[nodiscard]] int count_hosts(std::vector<int> hosts);

}  // namespace sinew::comm
