// Runner: runs one rank's actions of a pipeline schedule: computations on its stage, messages to
// its neighbours.
//
// Never does: choose the order (the schedule does). Threads: one rank, one thread.
// Each direction's next receive is posted while the rank still computes, into a buffer of its own;
// the program's receive waits for it. Sends are started and waited for before their buffer is
// written again, by which time the neighbour has posted the receive: no wait depends on a later
// action of this rank.
#pragma once

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
  // One stage per rank and an unsplit backward: the schedule has chunks == 1 and no kWeight.
  Runner(const sched::PipeSchedule& schedule, Stage<T>& stage, Parallel& parallel, Memory& memory);

  // Runs a whole step over the schedule's microbatches. losses: [microbatches], summed losses of
  // each, written on the last stage only. loss_scale as in Stage::forward.
  void train(std::span<const Microbatch> microbatches, T loss_scale, std::span<double> losses);
  // Forward only, one microbatch after the other, for any number of them.
  void evaluate(std::span<const Microbatch> microbatches, std::span<double> losses);

  // Slots this rank needs for a schedule: the most microbatches between forward and backward.
  [[nodiscard]] static int slots_needed(const sched::PipeSchedule& schedule, int pipeline_rank);
  // Most microbatches between forward and backward in the last train().
  [[nodiscard]] int peak_live() const { return peak_live_; }

  // The spans of the last train() on this rank, in seconds of the host's monotonic clock.
  [[nodiscard]] const std::vector<sched::Span>& spans() const { return spans_; }

 private:
  // Receives of one direction, in program order.
  struct Arrivals {
    std::vector<std::uint32_t> microbatches;
    std::size_t posted = 0;   // of them, in this step
    std::size_t arrived = 0;  // of them, in this step; at most one is posted and has not arrived
    int peer = 0;
    int tag = 0;
    comm::Request request;
  };
  // A gradient that arrived, became the next one in place and is on its way out.
  struct GradientBuffer {
    T* data = nullptr;
    comm::Request send;
  };

  void run(const sched::PipeAction& action, std::span<const Microbatch> microbatches, T loss_scale,
           std::span<double> losses);
  void forward(const sched::PipeAction& action, const Microbatch& microbatch, T loss_scale,
               std::span<double> losses);
  void backward(const sched::PipeAction& action, const Microbatch& microbatch);
  void post_forward();
  void post_backward();
  void post(Arrivals& arrivals, T* target);
  void await(Arrivals& arrivals, std::uint32_t microbatch);
  [[nodiscard]] comm::Request send(const T* source, int peer, int tag);
  [[nodiscard]] GradientBuffer& arrived_gradient();
  void finish_sends();
  [[nodiscard]] int slot_of(std::uint32_t microbatch) const;
  int take_slot(std::uint32_t microbatch);

  const sched::PipeSchedule& schedule_;
  Stage<T>& stage_;
  Parallel& parallel_;
  int rank_;  // along the pipeline
  Arrivals inputs_;
  Arrivals gradients_;
  T* input_buffer_ = nullptr;  // what inputs_ receives into
  // One receives, one is computed on, one is sent: by the number of the arrival.
  std::vector<GradientBuffer> gradient_buffers_;
  int backward_slot_ = -1;                    // of the last backward
  std::vector<std::int64_t> owner_;           // [slots] microbatch, or -1
  std::vector<comm::Request> forward_sends_;  // [slots]
  std::vector<comm::Request> loss_sends_;     // [slots] last stage: of the slot's own gradient
  int live_ = 0;
  int peak_live_ = 0;
  std::vector<sched::Span> spans_;
};

}  // namespace sinew::model
