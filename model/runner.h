// Runner: runs one rank's actions of a proved pipeline schedule: computations on its stages,
// messages by its mailbox.
//
// Never does: choose the order (the schedule does). Threads: one rank, one thread.
// Any schedule that sched/pipeline/verify.h proves runs, with any number of stages a rank, split
// backwards, and neighbouring stages on one rank, provided refuse_to_run() has nothing against it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/mailbox.h"
#include "model/parallel.h"
#include "model/stage.h"
#include "sched/pipeline/schedule.h"
#include "sched/timeline.h"

namespace sinew::model {

// Gradients of norms are accumulated by backwards and those of the head by the last stage's
// forwards, so these must come in increasing order of microbatches, too, for all schedules to give
// equal bits. Empty when they do, else the rule in one line. Every schedule in the table does.
[[nodiscard]] std::string refuse_to_run(const sched::PipeSchedule& schedule);

template <typename T>
class Runner {
 public:
  using W = kernels::Wide<T>;

  // credits: PipeFacts::credits of the schedule's proof.
  Runner(const sched::PipeSchedule& schedule, int credits, Stage<T>& stage, Parallel& parallel,
         Memory& memory);

  // Runs a whole step over the schedule's microbatches. losses: [microbatches], summed losses of
  // each, written on the last stage's rank only. loss_scale as in Stage::forward.
  void train(std::span<const Microbatch> microbatches, W loss_scale, std::span<double> losses);
  // Forward only, one microbatch after the other, for any number of them.
  void evaluate(std::span<const Microbatch> microbatches, std::span<double> losses);

  // Most (stage, microbatch) pairs held at once in the last train().
  [[nodiscard]] int peak_live() const { return peak_live_; }

  // The spans of the last train() on this rank, in seconds of the host's monotonic clock.
  [[nodiscard]] const std::vector<sched::Span>& spans() const { return spans_; }

 private:
  // A microbatch between its forward and its last backward on one of the rank's stages.
  struct Live {
    int stage;
    std::uint32_t microbatch;
    int slot;
  };

  void run(const sched::PipeAction& action, std::span<const Microbatch> microbatches, W loss_scale,
           std::span<double> losses);
  void forward(const sched::PipeAction& action, const Microbatch& microbatch, W loss_scale,
               std::span<double> losses);
  void backward(const sched::PipeAction& action, const Microbatch& microbatch);
  void weight(const sched::PipeAction& action, const Microbatch& microbatch);
  // Forward of one stage; returns its slot, which is still open.
  int evaluate(int stage, const Microbatch& microbatch, int before, double& loss);

  enum class Place : std::uint8_t { kNone, kHere, kElsewhere };
  // Where the neighbour (step +1 or -1) of one of this rank's stages lies.
  [[nodiscard]] Place neighbour(int stage, int step) const;
  [[nodiscard]] std::size_t chunk_of(int stage) const;
  [[nodiscard]] int open(int stage, std::uint32_t microbatch);
  [[nodiscard]] int slot_of(int stage, std::uint32_t microbatch) const;
  void close(int stage, std::uint32_t microbatch);

  const sched::PipeSchedule& schedule_;
  Stage<T>& stage_;
  int rank_;                 // along the pipeline
  std::vector<int> stages_;  // of this rank, in model order
  bool splits_backward_;
  Mailbox<T> mailbox_;
  std::vector<Live> live_;
  int peak_live_ = 0;
  std::vector<sched::Span> spans_;
};

}  // namespace sinew::model
