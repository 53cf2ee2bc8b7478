// A DeviceDoor over the transport cuda_ipc: collectives through a Resident on a stream of their
// own, and messages through Messages on a stream for each way, so that the stream that computes
// goes on beside them. Events alone order the streams.
#pragma once

#include <functional>
#include <memory>

#include "comm/bootstrap.h"
#include "comm/communicator.h"
#include "comm/device/resident.h"
#include "comm/device_door.h"

namespace sinew::comm {

// What a group's door is for: messages cost memory for every peer.
enum class DoorUse : std::uint8_t { kCollectives, kCollectivesAndMessages };

// Collective over the bootstrap's ranks; it and the stream must outlive the door. stream: the one
// that computes. owns: which memory is the device's. Throws as Resident does.
[[nodiscard]] std::unique_ptr<DeviceDoor> open_device_door(Bootstrap& bootstrap,
                                                           device::Stream& stream,
                                                           std::function<bool(const void*)> owns,
                                                           const ResidentOptions& options,
                                                           DoorUse use);
// Collective over the communicator, which carries the set-up and must outlive the door.
[[nodiscard]] std::unique_ptr<DeviceDoor> open_device_door(Communicator& communicator,
                                                           device::Stream& stream,
                                                           std::function<bool(const void*)> owns,
                                                           const ResidentOptions& options,
                                                           DoorUse use = DoorUse::kCollectives);

}  // namespace sinew::comm
