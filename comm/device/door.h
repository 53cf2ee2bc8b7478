// A DeviceDoor over the transport cuda_ipc: collectives through a Resident on one stream.
#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/device/resident.h"
#include "comm/device_door.h"

namespace sinew::comm {

// Collective over the communicator, which carries the set-up and must outlive the door. owns: which
// memory is the device's. Throws as Resident does.
[[nodiscard]] std::unique_ptr<DeviceDoor> open_device_door(Communicator& communicator,
                                                           device::Stream& stream,
                                                           std::function<bool(const void*)> owns,
                                                           const ResidentOptions& options);

}  // namespace sinew::comm
