#include "tools/device.h"

#include <fmt/format.h>

#include "comm/device/door.h"
#include "kernels/device/runtime.h"
#include "sched/base/error.h"

namespace sinew::tools {
namespace {

// Why there is no GPU, with the remedy; empty where there is one.
std::string missing_gpu() {
  std::string missing = device::unavailable();
  if (missing.empty() && device::properties().twin) {
    missing =
        "this build has no CUDA: build it with cmake --preset cuda where nvcc is, or use --device "
        "cpu, or --device twin, which runs the kernels on the processor";
  }
  return missing;
}

}  // namespace

bool wants_device(const std::string& name, bool speaks) {
  if (name != "auto") return name != "cpu";
  const std::string missing = missing_gpu();
  if (!missing.empty() && speaks) fmt::print("device: cpu, since {}\n", missing);
  return missing.empty();
}

void require_device(const std::string& name) {
  if (name == "twin") {
    if (!device::unavailable().empty() || !device::properties().twin)
      throw Error("device twin: this build has CUDA in its place; use --device cuda or cpu");
    return;
  }
  if (const std::string missing = missing_gpu(); !missing.empty())
    throw Error(fmt::format("device cuda: {}", missing));
}

void select_device(int rank) { device::select(rank % device::count()); }

comm::ResidentOptions resident_options(double timeout_s) {
  const bool twin = device::properties().twin;
  return {.channels = twin ? 2 : 8, .threads = twin ? 64U : 512U, .timeout_s = timeout_s};
}

std::string twin_notice() {
  if (!device::properties().twin) return {};
  return "the host twin stands in for a GPU: kernels run on the processor; times are the twin's "
         "and say nothing of a GPU";
}

OpenDevice::OpenDevice(double timeout_s) {
  train_.accelerator = &accelerator_;
  train_.open_door = [this, timeout_s](comm::Communicator& group, model::Parallel::Moves moves) {
    return comm::open_device_door(
        group, accelerator_.stream(),
        [this](const void* pointer) { return accelerator_.owns(pointer); },
        resident_options(timeout_s),
        moves == model::Parallel::Moves::kMessages ? comm::DoorUse::kCollectivesAndMessages
                                                   : comm::DoorUse::kCollectives);
  };
  train_.name = device::properties().name;
}

}  // namespace sinew::tools
