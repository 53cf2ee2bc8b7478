#include "comm/device/copies.h"

#include "sched/base/partition.h"

namespace sinew::comm {

namespace {

constexpr std::string_view kMeeting = "dissemination";

void meet(Resident& resident, device::Stream& stream) {
  const auto& row = sched::find_algorithm(sched::Collective::kBarrier, kMeeting);
  resident.run(row, 0, Protocol::kSimple, {}, stream);
}

// Bytes [part.offset, + part.count) of the own result, to everybody else's. Ranks begin with
// different peers, so that no link has all of the traffic.
void copy_to_all(const PeerMemory& result, const Part& part, device::Stream& stream) {
  const int rank = result.rank();
  for (int i = 1; i < result.world(); ++i) {
    const int peer = (rank + i) % result.world();
    stream.copy(result.of(peer) + part.offset, result.of(rank) + part.offset,
                static_cast<std::size_t>(part.count));
  }
}

}  // namespace

void all_gather_by_copies(Resident& resident, const PeerMemory& result, const void* mine,
                          std::int64_t part_bytes, device::Stream& stream) {
  const Part part = {result.rank() * part_bytes, part_bytes};
  meet(resident, stream);
  if (mine != nullptr)
    stream.copy(result.of(result.rank()) + part.offset, mine, static_cast<std::size_t>(part_bytes));
  copy_to_all(result, part, stream);
  meet(resident, stream);
}

void broadcast_by_copies(Resident& resident, const PeerMemory& result, const void* source,
                         std::int64_t size_bytes, int root, device::Stream& stream) {
  meet(resident, stream);
  if (result.rank() == root) {
    const char* from = result.of(root);
    if (source != nullptr) {
      stream.copy(result.of(root), source, static_cast<std::size_t>(size_bytes));
    }
    for (int i = 1; i < result.world(); ++i) {
      const int peer = (root + i) % result.world();
      const Part part = partition(size_bytes, result.world(), peer);
      stream.copy(result.of(peer) + part.offset, from + part.offset,
                  static_cast<std::size_t>(part.count));
    }
  }
  meet(resident, stream);
  copy_to_all(result, partition(size_bytes, result.world(), result.rank()), stream);
  meet(resident, stream);
}

}  // namespace sinew::comm
