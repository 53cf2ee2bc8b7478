// Runner: runs one rank's actions of a pipeline schedule: computations on its stage, messages to
// its neighbours.
//
// Never does: choose the order (the schedule does). Threads: one rank, one thread.
// Sends are started and waited for before their buffer is written again; receives block in program
// order, which the schedule's proof has shown to be free of deadlock.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "model/parallel.h"
#include "model/stage.h"
#include "sched/pipeline/schedule.h"
#include "sched/timeline.h"

namespace sinew::model {

template <typename T>
class Runner {
 public:
  // One stage per rank: the schedule has chunks == 1.
  Runner(const sched::PipeSchedule& schedule, Stage<T>& stage, Parallel& parallel, Memory& memory);

  // Runs a whole step over the schedule's microbatches. losses: [microbatches], summed losses of
  // each, written on the last stage only. loss_scale as in Stage::forward.
  void train(std::span<const Microbatch> microbatches, T loss_scale, std::span<double> losses);
  // Forward only, one microbatch after the other, for any number of them.
  void evaluate(std::span<const Microbatch> microbatches, std::span<double> losses);

  // Slots this rank needs for a schedule: the most microbatches between forward and backward.
  [[nodiscard]] static int slots_needed(const sched::PipeSchedule& schedule, int pipeline_rank);
  [[nodiscard]] int peak_live() const { return peak_live_; }

  // The spans of the last train() on this rank, in seconds since it began.
  [[nodiscard]] const std::vector<sched::Span>& spans() const { return spans_; }

 private:
  void run(const sched::PipeAction& action, std::span<const Microbatch> microbatches, T loss_scale,
           std::span<double> losses);
  void receive(T* target, int from, int tag);
  [[nodiscard]] int slot_of(std::uint32_t microbatch) const;
  int take_slot(std::uint32_t microbatch);

  const sched::PipeSchedule& schedule_;
  Stage<T>& stage_;
  Parallel& parallel_;
  int rank_;  // along the pipeline
  T* d_output_ = nullptr;
  T* d_input_ = nullptr;  // a copy that a send may still read while the next backward runs
  std::vector<std::int64_t> owner_;           // [slots] microbatch, or -1
  std::vector<comm::Request> forward_sends_;  // [slots]
  comm::Request backward_send_;
  int live_ = 0;
  int peak_live_ = 0;
  std::chrono::steady_clock::time_point began_;
  std::vector<sched::Span> spans_;
};

}  // namespace sinew::model
