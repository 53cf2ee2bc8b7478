// Copies: all-gather and broadcast of device memory by the devices' copy engines; no thread of a
// kernel moves a byte, so that all of them can compute meanwhile.
//
// The result lies in memory that all ranks map (PeerMemory). Each is a barrier on the links of a
// Resident (the row kMeeting), plain stream copies into the peers' blocks, and a barrier:
// the first says that every rank is done with what lay there before, the second that all has come.
// Everything is queued on one stream; it can be recorded into a graph.
//
// Never does: reduce. Threads and errors: the Resident's; calls count among its calls.
// Cost for P ranks and m bytes of result: all_gather P - 1 copies of m / P from every rank, the
// schedule of all_gather/direct; broadcast P - 1 copies of m / P from the root, a barrier, then
// that all-gather, the moves of van de Geijn's scatter and all-gather.
#pragma once

#include <cstdint>
#include <string_view>

#include "comm/device/resident.h"

namespace sinew::comm {

inline constexpr std::string_view kCopyEngineName = "copy_engine";

// result of every rank: [world, part_bytes]; mine: [part_bytes] of device memory, or null when it
// already lies at its place in the own result.
void all_gather_by_copies(Resident& resident, const PeerMemory& result, const void* mine,
                          std::int64_t part_bytes, device::Stream& stream);

// result of every rank: [size_bytes]; source: [size_bytes] on the root, or null when it lies in the
// root's result.
void broadcast_by_copies(Resident& resident, const PeerMemory& result, const void* source,
                         std::int64_t size_bytes, int root, device::Stream& stream);

}  // namespace sinew::comm
