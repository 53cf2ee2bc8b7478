#include "model/runner.h"

#include <algorithm>
#include <chrono>

#include "sched/base/check.h"

namespace sinew::model {

namespace {

using sched::PipeVerb;

// The two directions never share a stream: with two stages both neighbours are one rank.
constexpr int kForwardTag = 0;
constexpr int kBackwardTag = 1;
constexpr std::size_t kGradientBuffers = 3;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void wait_if_pending(comm::Request& request) {
  if (request.pending()) request.wait();
}

}  // namespace

template <typename T>
int Runner<T>::slots_needed(const sched::PipeSchedule& schedule, int pipeline_rank) {
  int live = 0;
  int most = 1;
  for (const sched::PipeAction& action :
       schedule.actions[static_cast<std::size_t>(pipeline_rank)]) {
    // An input that was received needs its slot from then on.
    const bool first_stage = action.stage == 0;
    if (action.verb == (first_stage ? PipeVerb::kForward : PipeVerb::kRecvForward))
      most = std::max(most, ++live);
    if (action.verb == PipeVerb::kBackward) --live;
  }
  return most;
}

template <typename T>
Runner<T>::Runner(const sched::PipeSchedule& schedule, Stage<T>& stage, Parallel& parallel,
                  Memory& memory)
    : schedule_(schedule), stage_(stage), parallel_(parallel), rank_(parallel.coordinates().pp) {
  CHECK_EQ(schedule.chunks, 1);
  CHECK_EQ(schedule.ranks, parallel.grid().sizes().pp);
  CHECK(!sched::splits_backward(schedule));
  inputs_.peer = rank_ - 1;
  inputs_.tag = kForwardTag;
  gradients_.peer = rank_ + 1;
  gradients_.tag = kBackwardTag;
  for (const sched::PipeAction& action : schedule.actions[static_cast<std::size_t>(rank_)]) {
    if (action.verb == PipeVerb::kRecvForward) inputs_.microbatches.push_back(action.microbatch);
    if (action.verb == PipeVerb::kRecvBackward)
      gradients_.microbatches.push_back(action.microbatch);
  }
  const auto slots = static_cast<std::size_t>(slots_needed(schedule, rank_));
  owner_.assign(slots, -1);
  forward_sends_.resize(slots);
  if (stage.shape().has_head) loss_sends_.resize(slots);
  const std::int64_t count = stage.boundary_count();
  if (!stage.shape().has_embedding) input_buffer_ = memory.workspace.allocate<T>(count);
  if (!stage.shape().has_head) {
    gradient_buffers_.resize(kGradientBuffers);
    for (GradientBuffer& buffer : gradient_buffers_)
      buffer.data = memory.workspace.allocate<T>(count);
  }
}

template <typename T>
void Runner<T>::train(std::span<const Microbatch> microbatches, T loss_scale,
                      std::span<double> losses) {
  CHECK_EQ(static_cast<int>(microbatches.size()), schedule_.microbatches);
  spans_.clear();
  live_ = 0;
  peak_live_ = 0;
  inputs_.posted = inputs_.arrived = 0;
  gradients_.posted = gradients_.arrived = 0;
  post_forward();
  post_backward();
  for (const sched::PipeAction& action : schedule_.actions[static_cast<std::size_t>(rank_)]) {
    const double begin = now_s();
    run(action, microbatches, loss_scale, losses);
    const bool forward = action.verb == PipeVerb::kForward;
    if (!forward && action.verb != PipeVerb::kBackward) continue;
    spans_.push_back({.row = rank_,
                      .lane = 0,
                      .label = (forward ? "F" : "B") + std::to_string(action.microbatch),
                      .begin_s = begin,
                      .end_s = now_s()});
  }
  finish_sends();
}

template <typename T>
void Runner<T>::run(const sched::PipeAction& action, std::span<const Microbatch> microbatches,
                    T loss_scale, std::span<double> losses) {
  const Microbatch& microbatch = microbatches[action.microbatch];
  switch (action.verb) {
    case PipeVerb::kRecvForward: {
      const int slot = take_slot(action.microbatch);
      await(inputs_, action.microbatch);
      stage_.swap_input(slot, input_buffer_);
      post_forward();
      return;
    }
    case PipeVerb::kForward:
      forward(action, microbatch, loss_scale, losses);
      return;
    case PipeVerb::kSendForward: {
      const int slot = slot_of(action.microbatch);
      forward_sends_[static_cast<std::size_t>(slot)] =
          send(stage_.output(slot), rank_ + 1, kForwardTag);
      return;
    }
    case PipeVerb::kRecvBackward:
      await(gradients_, action.microbatch);
      post_backward();
      return;
    case PipeVerb::kBackward:
      backward(action, microbatch);
      return;
    case PipeVerb::kSendBackward:
      if (stage_.shape().has_head) {
        loss_sends_[static_cast<std::size_t>(backward_slot_)] =
            send(stage_.output_gradient(backward_slot_), rank_ - 1, kBackwardTag);
      } else {
        GradientBuffer& buffer = arrived_gradient();
        buffer.send = send(buffer.data, rank_ - 1, kBackwardTag);
      }
      return;
    case PipeVerb::kWeight:
      CHECK(false);
      return;
  }
}

template <typename T>
void Runner<T>::forward(const sched::PipeAction& action, const Microbatch& microbatch, T loss_scale,
                        std::span<double> losses) {
  const int slot =
      stage_.shape().has_embedding ? take_slot(action.microbatch) : slot_of(action.microbatch);
  const double loss = stage_.forward(slot, microbatch, loss_scale, Stage<T>::Mode::kTrain);
  if (stage_.shape().has_head) losses[action.microbatch] = loss;
}

template <typename T>
void Runner<T>::backward(const sched::PipeAction& action, const Microbatch& microbatch) {
  const int slot = slot_of(action.microbatch);
  const bool last_stage = stage_.shape().has_head;
  if (!last_stage) CHECK_EQ(gradients_.microbatches[gradients_.arrived - 1], action.microbatch);
  stage_.backward(slot, microbatch,
                  last_stage ? stage_.output_gradient(slot) : arrived_gradient().data);
  owner_[static_cast<std::size_t>(slot)] = -1;
  backward_slot_ = slot;
  --live_;
}

template <typename T>
void Runner<T>::post_forward() {
  post(inputs_, input_buffer_);
}

template <typename T>
void Runner<T>::post_backward() {
  if (gradient_buffers_.empty()) return;
  GradientBuffer& buffer = gradient_buffers_[gradients_.posted % kGradientBuffers];
  wait_if_pending(buffer.send);
  post(gradients_, buffer.data);
}

template <typename T>
void Runner<T>::post(Arrivals& arrivals, T* target) {
  if (arrivals.posted == arrivals.microbatches.size()) return;
  arrivals.request = parallel_.pipeline()->start_recv(target, stage_.boundary_count(),
                                                      dtype_of_v<T>, arrivals.peer, arrivals.tag);
  ++arrivals.posted;
}

template <typename T>
void Runner<T>::await(Arrivals& arrivals, std::uint32_t microbatch) {
  CHECK_LT(arrivals.arrived, arrivals.posted);
  CHECK_EQ(arrivals.microbatches[arrivals.arrived], microbatch);
  arrivals.request.wait();
  ++arrivals.arrived;
}

template <typename T>
comm::Request Runner<T>::send(const T* source, int peer, int tag) {
  return parallel_.pipeline()->start_send(source, stage_.boundary_count(), dtype_of_v<T>, peer,
                                          tag);
}

template <typename T>
typename Runner<T>::GradientBuffer& Runner<T>::arrived_gradient() {
  return gradient_buffers_[(gradients_.arrived - 1) % kGradientBuffers];
}

template <typename T>
void Runner<T>::finish_sends() {
  for (comm::Request& request : forward_sends_) wait_if_pending(request);
  for (comm::Request& request : loss_sends_) wait_if_pending(request);
  for (GradientBuffer& buffer : gradient_buffers_) wait_if_pending(buffer.send);
}

template <typename T>
int Runner<T>::slot_of(std::uint32_t microbatch) const {
  const auto found = std::find(owner_.begin(), owner_.end(), static_cast<std::int64_t>(microbatch));
  CHECK(found != owner_.end());
  return static_cast<int>(found - owner_.begin());
}

template <typename T>
int Runner<T>::take_slot(std::uint32_t microbatch) {
  const auto free = std::find(owner_.begin(), owner_.end(), -1);
  CHECK(free != owner_.end());
  *free = microbatch;
  const auto slot = static_cast<std::size_t>(free - owner_.begin());
  // Sends of what the slot held before may still read it.
  wait_if_pending(forward_sends_[slot]);
  if (!loss_sends_.empty()) wait_if_pending(loss_sends_[slot]);
  peak_live_ = std::max(peak_live_, ++live_);
  return static_cast<int>(slot);
}

template <typename T>
void Runner<T>::evaluate(std::span<const Microbatch> microbatches, std::span<double> losses) {
  const StageShape& shape = stage_.shape();
  const std::int64_t count = stage_.boundary_count();
  for (std::size_t i = 0; i < microbatches.size(); ++i) {
    if (!shape.has_embedding)
      parallel_.pipeline()->recv(stage_.input(0), count, dtype_of_v<T>, rank_ - 1, kForwardTag);
    const double loss = stage_.forward(0, microbatches[i], T{0}, Stage<T>::Mode::kEvaluate);
    if (shape.has_head) {
      losses[i] = loss;
    } else {
      parallel_.pipeline()->send(stage_.output(0), count, dtype_of_v<T>, rank_ + 1, kForwardTag);
    }
  }
}

template class Runner<float>;
template class Runner<double>;

}  // namespace sinew::model
