#include "model/device_step.h"

namespace sinew::model {

DeviceStep::DeviceStep(kernels::Accelerator& accelerator, const Sizes& sizes, Queueing queueing)
    : accelerator_(accelerator),
      queueing_(queueing),
      tokens_(allocate<std::int32_t>(sizes.positions)),
      targets_(allocate<std::int32_t>(sizes.positions)),
      update_(allocate<kernels::StepUpdate>(1).data()),
      losses_(allocate<double>(sizes.microbatches)),
      square_sums_(allocate<double>(sizes.tensors)),
      not_finite_(allocate<std::uint64_t>(sizes.parameters)),
      packed_(allocate<float>(sizes.packed)) {
  accelerator_.synchronize();  // the zeros are there before the host writes
  accelerator_.set_update(update_);
}

DeviceStep::~DeviceStep() {
  accelerator_.set_update(nullptr);
  recording_.reset();
  for (void* memory : memory_) accelerator_.free(memory);
}

template <typename T>
std::span<T> DeviceStep::allocate(std::int64_t count) {
  if (count == 0) return {};
  memory_.push_back(accelerator_.allocate(static_cast<std::size_t>(count) * sizeof(T)));
  return {static_cast<T*>(memory_.back()), static_cast<std::size_t>(count)};
}

DeviceStep::Taken DeviceStep::take(const std::function<void()>& queue) {
  if (queueing_ == Queueing::kPlain || !taken_) {
    queue();
    taken_ = true;
    return Taken::kQueued;
  }
  const bool known = recording_ != nullptr;
  if (!known) recording_ = accelerator_.record(queue);
  recording_->replay();
  return known ? Taken::kReplayed : Taken::kRecorded;
}

}  // namespace sinew::model
