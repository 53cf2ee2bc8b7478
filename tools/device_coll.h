// DeviceColl: `sinew coll --device cuda`: measures collectives on device memory over the transport
// cuda_ipc and checks their results.
//
// On the host twin the output says so first, and no bandwidth is given: the twin executes the
// kernels' text, not their speed.
//
// Threads: one. Collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace sinew::tools {

struct DeviceCollOptions {
  std::vector<sched::Collective> ops;
  std::vector<std::string> algorithms;  // auto, all, copy_engine and names
  std::vector<std::int64_t> sizes_bytes;
  std::vector<DType> dtypes;
  std::vector<ReduceOp> reduces;
  std::string device = "cuda";  // device.h
  std::string protocol = "auto";
  std::string json;
  int channels = 0;  // blocks of the kernel; 0: what suits the device
  int root = 0;
  bool inplace = false;
  bool check = false;
  double budget_s = 0.1;
  double timeout_s = 60;
};

// Throws UsageError and Error; returns the exit code.
int run_device_coll(comm::Communicator& communicator, const DeviceCollOptions& options);

}  // namespace sinew::tools
