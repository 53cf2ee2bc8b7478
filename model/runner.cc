#include "model/runner.h"

#include <algorithm>

#include "sched/base/check.h"

namespace sinew::model {

namespace {

using Clock = std::chrono::steady_clock;
using sched::PipeVerb;

// The two directions never share a stream: with two stages both neighbours are one rank.
constexpr int kForwardTag = 0;
constexpr int kBackwardTag = 1;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
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
    // An activation that arrives before its forward needs its slot from then on.
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
  const int slots = slots_needed(schedule, rank_);
  owner_.assign(static_cast<std::size_t>(slots), -1);
  forward_sends_.resize(static_cast<std::size_t>(slots));
  if (!stage.shape().has_head) d_output_ = memory.workspace.allocate<T>(stage.boundary_count());
  if (!stage.shape().has_embedding) d_input_ = memory.workspace.allocate<T>(stage.boundary_count());
}

template <typename T>
void Runner<T>::train(std::span<const Microbatch> microbatches, T loss_scale,
                      std::span<double> losses) {
  CHECK_EQ(static_cast<int>(microbatches.size()), schedule_.microbatches);
  spans_.clear();
  began_ = Clock::now();
  live_ = 0;
  peak_live_ = 0;
  for (const sched::PipeAction& action : schedule_.actions[static_cast<std::size_t>(rank_)]) {
    const double begin = seconds_since(began_);
    run(action, microbatches, loss_scale, losses);
    const bool compute = action.verb == PipeVerb::kForward || action.verb == PipeVerb::kBackward;
    if (compute) {
      spans_.push_back({.row = rank_,
                        .lane = 0,
                        .label = (action.verb == PipeVerb::kForward ? "F" : "B") +
                                 std::to_string(action.microbatch),
                        .begin_s = begin,
                        .end_s = seconds_since(began_)});
    }
  }
  for (comm::Request& request : forward_sends_) wait_if_pending(request);
  wait_if_pending(backward_send_);
}

template <typename T>
void Runner<T>::run(const sched::PipeAction& action, std::span<const Microbatch> microbatches,
                    T loss_scale, std::span<double> losses) {
  const Microbatch& microbatch = microbatches[action.microbatch];
  const std::int64_t count = stage_.boundary_count();
  switch (action.verb) {
    case PipeVerb::kRecvForward:
      receive(stage_.input(take_slot(action.microbatch)), rank_ - 1, kForwardTag);
      return;
    case PipeVerb::kForward: {
      const int slot =
          stage_.shape().has_embedding ? take_slot(action.microbatch) : slot_of(action.microbatch);
      const double loss = stage_.forward(slot, microbatch, loss_scale, Stage<T>::Mode::kTrain);
      if (stage_.shape().has_head) losses[action.microbatch] = loss;
      return;
    }
    case PipeVerb::kSendForward: {
      const int slot = slot_of(action.microbatch);
      forward_sends_[static_cast<std::size_t>(slot)] = parallel_.pipeline()->start_send(
          stage_.output(slot), count, dtype_of_v<T>, rank_ + 1, kForwardTag);
      return;
    }
    case PipeVerb::kRecvBackward:
      receive(d_output_, rank_ + 1, kBackwardTag);
      return;
    case PipeVerb::kBackward: {
      const int slot = slot_of(action.microbatch);
      const T* d_input = stage_.backward(slot, microbatch, d_output_);
      if (d_input != nullptr) {
        wait_if_pending(backward_send_);
        std::copy_n(d_input, count, d_input_);
      }
      owner_[static_cast<std::size_t>(slot)] = -1;
      --live_;
      return;
    }
    case PipeVerb::kSendBackward:
      backward_send_ =
          parallel_.pipeline()->start_send(d_input_, count, dtype_of_v<T>, rank_ - 1, kBackwardTag);
      return;
    case PipeVerb::kWeight:
      CHECK(action.verb != PipeVerb::kWeight);
      return;
  }
}

template <typename T>
void Runner<T>::receive(T* target, int from, int tag) {
  parallel_.pipeline()->recv(target, stage_.boundary_count(), dtype_of_v<T>, from, tag);
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
  const int slot = static_cast<int>(free - owner_.begin());
  // The send of the slot's previous output may still read it.
  wait_if_pending(forward_sends_[static_cast<std::size_t>(slot)]);
  peak_live_ = std::max(peak_live_, ++live_);
  return slot;
}

template <typename T>
void Runner<T>::evaluate(std::span<const Microbatch> microbatches, std::span<double> losses) {
  const StageShape& shape = stage_.shape();
  const std::int64_t count = stage_.boundary_count();
  for (std::size_t i = 0; i < microbatches.size(); ++i) {
    if (!shape.has_embedding) receive(stage_.input(0), rank_ - 1, kForwardTag);
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
