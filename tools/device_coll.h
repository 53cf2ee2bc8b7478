// DeviceColl: `sinew coll --device cuda`: measures collectives on device memory over the transport
// cuda_ipc and checks their results.
//
// On the host twin the output says so first, and no bandwidth is given: the twin executes the
// kernels' text, not their speed.
//
// Threads: one. Collective.
#pragma once

#include "comm/communicator.h"
#include "tools/coll_request.h"

namespace sinew::tools {

// Throws UsageError and Error; returns the exit code.
int run_device_coll(comm::Communicator& communicator, const CollOptions& options,
                    const CollRequest& request);

}  // namespace sinew::tools
