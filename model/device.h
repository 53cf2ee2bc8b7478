// TrainDevice: what a trainer needs of a device to train on it: kernels and memory, and doors for
// the collectives of its groups. tools/ opens one; model/ knows no runtime.
//
// Threads: plain values; used by the trainer's thread.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "comm/device_door.h"
#include "kernels/accelerator.h"
#include "model/parallel.h"
#include "model/trainer.h"

namespace sinew::model {

// By default the processor. What it names must outlive the trainer.
struct TrainDevice {
  kernels::Accelerator* accelerator = nullptr;
  // Collective over the group: how its calls reach the accelerator's memory.
  Parallel::OpenDoor open_door;
  std::string name = "cpu";  // for people
};

// Empty when the plan can be trained on a device, else the first rule it breaks in one line that
// names the value and the legal ones.
[[nodiscard]] std::string refuse_on_device(const TrainPlan& plan);

}  // namespace sinew::model
