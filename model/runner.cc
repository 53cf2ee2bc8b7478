#include "model/runner.h"

#include <algorithm>
#include <chrono>

#include "kernels/elementwise.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {

using sched::PipeAction;
using sched::PipeVerb;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string refuse_to_run(const sched::PipeSchedule& schedule) {
  std::vector<std::int64_t> next_forward(static_cast<std::size_t>(schedule.stages()), 0);
  std::vector<std::int64_t> next_backward = next_forward;
  for (const auto& program : schedule.actions) {
    for (const PipeAction& action : program) {
      const bool forward =
          action.verb == PipeVerb::kForward && action.stage + 1 == schedule.stages();
      if (!forward && action.verb != PipeVerb::kBackward) continue;
      std::int64_t& next = (forward ? next_forward : next_backward)[action.stage];
      if (action.microbatch == next++) continue;
      return "pipeline schedule '" + schedule.name + "' has " + sched::print(action) +
             " out of order: backwards of a stage and forwards of the last one accumulate "
             "gradients, so their microbatches must come as 0, 1, 2, ...";
    }
  }
  return {};
}

template <typename T>
Runner<T>::Runner(const sched::PipeSchedule& schedule, int credits, Stage<T>& stage,
                  Parallel& parallel, Memory& memory)
    : schedule_(schedule),
      stage_(stage),
      rank_(parallel.coordinates().pp),
      stages_(sched::stages_of(schedule, rank_)),
      splits_backward_(sched::splits_backward(schedule)),
      mailbox_(schedule, rank_, credits, stage.boundary_count(), parallel.pipeline(),
               stage.threads(), memory.messages) {
  CHECK_EQ(schedule.ranks, parallel.grid().sizes().pp);
  CHECK_EQ(stages_.size(), stage.chunks());
  CHECK(refuse_to_run(schedule).empty());
}

template <typename T>
void Runner<T>::train(std::span<const Microbatch> microbatches, W loss_scale,
                      std::span<double> losses) {
  CHECK_EQ(static_cast<int>(microbatches.size()), schedule_.microbatches);
  spans_.clear();
  peak_live_ = 0;
  mailbox_.begin_step();
  for (const PipeAction& action : schedule_.actions[static_cast<std::size_t>(rank_)]) {
    mailbox_.progress();
    const double begin = now_s();
    run(action, microbatches, loss_scale, losses);
    const bool computes = action.verb == PipeVerb::kForward || action.verb == PipeVerb::kBackward ||
                          action.verb == PipeVerb::kWeight;
    if (!computes) continue;
    // The span is the work's, or the recording's.
    if (schedule_.ranks > 1 && !kernels::recording(stage_.threads()))
      kernels::synchronize(stage_.threads());
    spans_.push_back(
        {.row = rank_,
         .lane = 0,
         .label = std::string(name_of(action.verb)) + std::to_string(action.microbatch),
         .begin_s = begin,
         .end_s = now_s(),
         .shade = static_cast<int>(chunk_of(action.stage))});
  }
  mailbox_.end_step();
  CHECK(live_.empty());
}

template <typename T>
void Runner<T>::run(const PipeAction& action, std::span<const Microbatch> microbatches,
                    W loss_scale, std::span<double> losses) {
  const Microbatch& microbatch = microbatches[action.microbatch];
  switch (action.verb) {
    case PipeVerb::kForward:
      forward(action, microbatch, loss_scale, losses);
      return;
    case PipeVerb::kBackward:
      backward(action, microbatch);
      return;
    case PipeVerb::kWeight:
      weight(action, microbatch);
      return;
    case PipeVerb::kRecvForward:
    case PipeVerb::kRecvBackward:
      mailbox_.receive(action);
      return;
    case PipeVerb::kSendForward:
    case PipeVerb::kSendBackward:
      mailbox_.send(action);
      return;
  }
}

template <typename T>
void Runner<T>::forward(const PipeAction& action, const Microbatch& microbatch, W loss_scale,
                        std::span<double> losses) {
  const int stage = action.stage;
  const int slot = open(stage, action.microbatch);
  const Place before = neighbour(stage, -1);
  if (before == Place::kElsewhere)
    mailbox_.take(Direction::kForward, stage, action.microbatch, stage_.input(slot));
  if (before == Place::kHere) {
    const T* source = stage_.output(slot_of(stage - 1, action.microbatch));
    kernels::copy<T>(stage_.input(slot), source, stage_.boundary_count(), stage_.threads());
  }
  const double loss = stage_.forward(slot, microbatch, loss_scale, Stage<T>::Mode::kTrain);
  if (stage + 1 == schedule_.stages()) losses[action.microbatch] = loss;
  if (neighbour(stage, 1) == Place::kElsewhere)
    mailbox_.put(Direction::kForward, stage, action.microbatch, stage_.output(slot));
}

template <typename T>
void Runner<T>::backward(const PipeAction& action, const Microbatch& microbatch) {
  using Weights = typename Stage<T>::Weights;
  const int stage = action.stage;
  const int slot = slot_of(stage, action.microbatch);
  // A later stage on this rank has left the gradient in output() already.
  if (neighbour(stage, 1) == Place::kElsewhere)
    mailbox_.take(Direction::kBackward, stage, action.microbatch, stage_.output(slot));
  stage_.backward(slot, microbatch, splits_backward_ ? Weights::kLater : Weights::kNow);
  const Place before = neighbour(stage, -1);
  if (before == Place::kHere) {
    T* target = stage_.output(slot_of(stage - 1, action.microbatch));
    kernels::copy<T>(target, stage_.input(slot), stage_.boundary_count(), stage_.threads());
  }
  if (before == Place::kElsewhere)
    mailbox_.put(Direction::kBackward, stage, action.microbatch, stage_.input(slot));
  if (!splits_backward_) close(stage, action.microbatch);
}

template <typename T>
void Runner<T>::weight(const PipeAction& action, const Microbatch& microbatch) {
  stage_.backward_weights(slot_of(action.stage, action.microbatch), microbatch);
  close(action.stage, action.microbatch);
}

template <typename T>
void Runner<T>::evaluate(std::span<const Microbatch> microbatches, std::span<double> losses) {
  for (std::size_t i = 0; i < microbatches.size(); ++i) {
    int before = -1;  // slot of the stage before, where that is on this rank
    for (const int stage : stages_) {
      const int slot = evaluate(stage, microbatches[i], before, losses[i]);
      if (before >= 0) stage_.close(before);
      before = slot;
      if (neighbour(stage, 1) == Place::kHere) continue;
      stage_.close(slot);
      before = -1;
    }
  }
}

template <typename T>
int Runner<T>::evaluate(int stage, const Microbatch& microbatch, int before, double& loss) {
  const int slot = stage_.open(chunk_of(stage));
  if (neighbour(stage, -1) == Place::kHere)
    kernels::copy<T>(stage_.input(slot), stage_.output(before), stage_.boundary_count(),
                     stage_.threads());
  if (neighbour(stage, -1) == Place::kElsewhere)
    mailbox_.receive_now(schedule_.rank_of(stage - 1), stage_.input(slot));
  const double sum = stage_.forward(slot, microbatch, W{0}, Stage<T>::Mode::kEvaluate);
  if (stage + 1 == schedule_.stages()) loss = sum;
  if (neighbour(stage, 1) == Place::kElsewhere)
    mailbox_.send_now(schedule_.rank_of(stage + 1), stage_.output(slot));
  return slot;
}

template <typename T>
typename Runner<T>::Place Runner<T>::neighbour(int stage, int step) const {
  const int other = stage + step;
  if (other < 0 || other >= schedule_.stages()) return Place::kNone;
  return schedule_.rank_of(other) == rank_ ? Place::kHere : Place::kElsewhere;
}

template <typename T>
std::size_t Runner<T>::chunk_of(int stage) const {
  const auto found = std::find(stages_.begin(), stages_.end(), stage);
  CHECK(found != stages_.end());
  return static_cast<std::size_t>(found - stages_.begin());
}

template <typename T>
int Runner<T>::open(int stage, std::uint32_t microbatch) {
  const int slot = stage_.open(chunk_of(stage));
  live_.push_back({stage, microbatch, slot});
  peak_live_ = std::max(peak_live_, static_cast<int>(live_.size()));
  return slot;
}

template <typename T>
int Runner<T>::slot_of(int stage, std::uint32_t microbatch) const {
  const auto found = std::find_if(live_.begin(), live_.end(), [&](const Live& live) {
    return live.stage == stage && live.microbatch == microbatch;
  });
  CHECK(found != live_.end());
  return found->slot;
}

template <typename T>
void Runner<T>::close(int stage, std::uint32_t microbatch) {
  const auto found = std::find_if(live_.begin(), live_.end(), [&](const Live& live) {
    return live.stage == stage && live.microbatch == microbatch;
  });
  CHECK(found != live_.end());
  stage_.close(found->slot);
  live_.erase(found);
}

template class Runner<float>;
template class Runner<double>;
template class Runner<bf16>;

}  // namespace sinew::model
