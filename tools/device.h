// The device of a run: which memory `--device NAME` means in this build, and a trainer's device.
//
// NAME is cpu; cuda, a GPU of a build with CUDA; twin, the host twin of a build without, which runs
// the kernels' text on the processor; or auto, a GPU where there is one, else cpu.
//
// Threads: one. A device belongs to the thread that opened it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/device/resident.h"
#include "kernels/device/accelerator.h"
#include "model/device.h"

namespace sinew::tools {

inline const std::vector<std::string> kDeviceNames = {"cpu", "cuda", "twin", "auto"};

// Whether the name means device memory here. `auto` says on standard output why it does not,
// if it is to speak.
[[nodiscard]] bool wants_device(const std::string& name, bool speaks);
// Throws Error in one line with the remedy where this build or machine has no device of that name.
void require_device(const std::string& name);
// Throws Error. One device after the other for the ranks of a host, round and round.
void select_device(int rank);

// Options of collectives that suit the device: on the twin every thread of a launch costs a
// microsecond, and few show the same.
[[nodiscard]] comm::ResidentOptions resident_options(double timeout_s);

// What the twin is, for the first line of a run on it; empty for a GPU.
[[nodiscard]] std::string twin_notice();

// The selected device for a trainer.
class OpenDevice {
 public:
  explicit OpenDevice(double timeout_s);
  [[nodiscard]] const model::TrainDevice& train() const { return train_; }

 private:
  kernels::DeviceAccelerator accelerator_;
  model::TrainDevice train_;
};

}  // namespace sinew::tools
