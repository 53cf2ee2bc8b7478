// The optimizer's step on a device: the same sums, clipping and update as on the processor, without
// an answer to the host until the step is over.
#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "model/device_step.h"
#include "model/optimizer.h"
#include "model/partial.h"

namespace sinew::model {

template <typename T>
void Optimizer<T>::use(DeviceStep& device) {
  device_ = &device;
  stage_.units().watch(device.not_finite());
}

template <typename T>
void Optimizer<T>::tell(double learning_rate) {
  CHECK(device_ != nullptr);
  const kernels::AdamWFactors<float> factors({.lr = learning_rate,
                                              .beta1 = options_.beta1,
                                              .beta2 = options_.beta2,
                                              .step = steps_taken_ + 1});
  kernels::StepUpdate& update = device_->update();
  update.lr = factors.lr;
  update.correction1 = factors.correction1;
  update.correction2 = factors.correction2;
  update.rounding_stream = static_cast<std::uint64_t>(steps_taken_ + 1) * names_.size();
}

// A tensor has one piece here at most: it lies within a unit.
template <typename T>
void Optimizer<T>::queue_square_sums() {
  kernels::Accelerator& accelerator = device_->accelerator();
  const std::span<double> sums = device_->square_sums();
  accelerator.clear(sums.data(), sums.size_bytes());
  std::vector<bool> seen(sums.size(), false);
  stage_.units().with_gradients([&](const auto* gradients) {
    for_each_piece([&](const Parameter& p, const Piece& piece) {
      if (!holds_for_all(p, parallel_.coordinates())) return;
      const auto index = static_cast<std::size_t>(p.index);
      CHECK(!seen[index]);
      seen[index] = true;
      if constexpr (std::is_same_v<decltype(gradients), const float*>)
        accelerator.sum_of_squares(gradients + piece.gradient_begin, piece.count, &sums[index]);
    });
  });
  const auto count = static_cast<std::int64_t>(sums.size());
  sum_over(parallel_.tensor(), sums.data(), count);
  // The pipeline's ranks may not map each other: then the host sums.
  if (parallel_.pipeline() != nullptr && !parallel_.pipeline()->sends_from_device())
    accelerator.synchronize();
  sum_over(parallel_.pipeline(), sums.data(), count);
  if (options_.zero != 0) sum_over(parallel_.shard(), sums.data(), count);
}

template <typename T>
void Optimizer<T>::queue_step() {
  queue_square_sums();
  const std::span<double> sums = device_->square_sums();
  device_->accelerator().finish_norm(sums.data(), static_cast<std::int64_t>(sums.size()),
                                     {.clip = options_.clip, .guard = kNormGuard},
                                     &device_->update());
  for_each_piece([&](const Parameter& p, const Piece& piece) { queue_update(p, piece); });
  stage_.units().share_weights();
}

template <typename T>
void Optimizer<T>::queue_update(const Parameter& p, const Piece& piece) {
  if constexpr (std::is_same_v<T, bf16>) {
    kernels::Accelerator& accelerator = device_->accelerator();
    const kernels::AdamW adamw{.beta1 = options_.beta1,
                               .beta2 = options_.beta2,
                               .epsilon = options_.epsilon,
                               .weight_decay = p.decay ? options_.weight_decay : 0};
    const auto update = [&](const Piece& part, auto&& step) {
      step(stage_.gradients() + part.gradient_begin, stage_.weights() + part.weight_begin,
           first_moment_ + part.state_begin, second_moment_ + part.state_begin);
    };
    if (updates_wide()) {
      update(piece, [&](const float* gradient, bf16* weight, float* first, float* second) {
        accelerator.adamw_with_master(adamw, piece.count, gradient, masters(piece), weight, first,
                                      second, &device_->update());
      });
      return;
    }
    const kernels::RandomStream random{options_.seed, kRoundingPurpose,
                                       static_cast<std::uint64_t>(p.index)};
    for_each_run_within(
        p, piece.flat_begin, piece.flat_begin + piece.count,
        [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
          const Piece run = piece.within(flat, flat + count);
          update(run, [&](const float* gradient, bf16* weight, float* first, float* second) {
            accelerator.adamw_stochastic(adamw, random, logical + run.flat_begin - flat, run.count,
                                         gradient, weight, first, second, &device_->update());
          });
        });
  }
}

template <typename T>
StepReport Optimizer<T>::report() {
  const kernels::StepUpdate& update = device_->update();
  StepReport report;
  report.gradient_norm = update.norm;
  report.skipped = update.skipped != 0;
  if (report.skipped) {
    const std::span<double> sums = device_->square_sums();
    find_bad({sums.begin(), sums.end()}, report);
  } else {
    ++steps_taken_;
  }
  return report;
}

#define SINEW_INSTANTIATE(T)                                                \
  template void Optimizer<T>::use(DeviceStep&);                             \
  template void Optimizer<T>::tell(double);                                 \
  template void Optimizer<T>::queue_square_sums();                          \
  template void Optimizer<T>::queue_step();                                 \
  template void Optimizer<T>::queue_update(const Parameter&, const Piece&); \
  template StepReport Optimizer<T>::report();
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::model
