// Small training runs on the device: the options they share, and a rank's device with its doors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/device/door.h"
#include "kernels/device/accelerator.h"
#include "kernels/device/twin/config.h"
#include "model/device.h"
#include "model/layouts.h"
#include "model/trainer.h"
#include "tests/gpu/ranks.h"

namespace sinew::testing {

inline model::TrainOptions small_options(const std::string& model, std::int64_t steps) {
  model::TrainOptions options;
  options.model = model;
  options.dtype = "bf16";
  options.batch = 4;
  options.microbatches = 2;
  options.steps = steps;
  options.lr = 0.05;
  options.eps = model::noise_epsilon("bf16");
  options.threads = 1;
  return options;
}

// kByHost: as where the ranks of a pipeline cannot map each other's memory.
enum class Messages : std::uint8_t { kByDevice, kByHost };

// What stands before each door of a device; by default nothing.
using Wrap = std::function<std::unique_ptr<comm::DeviceDoor>(kernels::DeviceAccelerator&,
                                                             std::unique_ptr<comm::DeviceDoor>)>;

// Calls body with a device of the calling rank's. Ranks outnumber cores, and a receive waits for as
// long as its sender computes: only a hang meets a deadline.
inline void with_device(Messages messages, const Wrap& wrap,
                        const std::function<void(const model::TrainDevice&)>& body) {
  twin::Config config = twin::Scope::current();
  config.spin_limit_s = kHangS;
  const twin::Scope scope(config);
  kernels::DeviceAccelerator accelerator;
  body({.accelerator = &accelerator,
        .open_door = [&](comm::Communicator& group,
                         model::Parallel::Moves moves) -> std::unique_ptr<comm::DeviceDoor> {
          const bool for_messages = moves == model::Parallel::Moves::kMessages;
          if (for_messages && messages == Messages::kByHost) return nullptr;
          comm::ResidentOptions options;
          options.channels = 2;
          options.threads = 32;
          options.timeout_s = kHangS;
          auto door = comm::open_device_door(
              group, accelerator.stream(),
              [&](const void* pointer) { return accelerator.owns(pointer); }, options,
              for_messages ? comm::DoorUse::kCollectivesAndMessages : comm::DoorUse::kCollectives);
          return wrap ? wrap(accelerator, std::move(door)) : std::move(door);
        },
        .name = "twin"});
}

}  // namespace sinew::testing
