// DeviceStep: a training step as a device takes it: what the host tells it before it begins and
// what it leaves for the host to read when it is over, in the device's memory, so that nothing in
// between is asked or decided by the host; and its recording, by which later steps are one call.
//
// Never does: compute. Threads: one rank, one thread. The host uses the arrays between steps only,
// when the device is idle. They are in no arena: a few words beside what formulas count.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/accelerator.h"

namespace sinew::model {

// kGraph: the first step makes workspaces and prepares collectives, the second is recorded, and it
// and all later ones are replayed.
enum class Queueing : std::uint8_t { kPlain, kGraph };

class DeviceStep {
 public:
  struct Sizes {
    std::int64_t microbatches = 0;
    std::int64_t tensors = 0;     // of the model
    std::int64_t parameters = 0;  // of this rank's stage
    std::int64_t positions = 0;   // of this rank's tokens in a step
    std::int64_t packed = 0;      // floats
  };
  // The accelerator must outlive it, and takes its scales and streams from it meanwhile.
  DeviceStep(kernels::Accelerator& accelerator, const Sizes& sizes, Queueing queueing);
  ~DeviceStep();
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;

  [[nodiscard]] kernels::Accelerator& accelerator() const { return accelerator_; }
  // Told by the host: tokens and targets of this rank, and the update's first part.
  [[nodiscard]] std::span<std::int32_t> tokens() const { return tokens_; }
  [[nodiscard]] std::span<std::int32_t> targets() const { return targets_; }
  [[nodiscard]] kernels::StepUpdate& update() const { return *update_; }
  // Left by the device: sums of the microbatches' losses, where this rank has the last stage; sums
  // of squares by tensor; by parameter whether a gradient was not finite (1).
  [[nodiscard]] std::span<double> losses() const { return losses_; }
  [[nodiscard]] std::span<double> square_sums() const { return square_sums_; }
  [[nodiscard]] std::span<std::uint64_t> not_finite() const { return not_finite_; }
  // What is summed over ranks together.
  [[nodiscard]] std::span<float> packed() const { return packed_; }

  // Takes a step, whose calls `queue` makes. kQueued: it made them; kRecorded: it made them to be
  // recorded and now they run; kReplayed: they run again, and `queue` was not called.
  enum class Taken : std::uint8_t { kQueued, kRecorded, kReplayed };
  Taken take(const std::function<void()>& queue);

 private:
  template <typename T>
  [[nodiscard]] std::span<T> allocate(std::int64_t count);

  kernels::Accelerator& accelerator_;
  Queueing queueing_;
  std::vector<void*> memory_;
  std::span<std::int32_t> tokens_;
  std::span<std::int32_t> targets_;
  kernels::StepUpdate* update_ = nullptr;
  std::span<double> losses_;
  std::span<double> square_sums_;
  std::span<std::uint64_t> not_finite_;
  std::span<float> packed_;
  bool taken_ = false;
  std::unique_ptr<kernels::Accelerator::Recording> recording_;
};

}  // namespace sinew::model
