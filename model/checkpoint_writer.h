// CheckpointWriter: writes a checkpoint beside the training: a copy of this rank's slices goes to
// the disk in a thread while steps go on.
//
// start() copies and returns; the checkpoint becomes the newest in poll() or finish(), once every
// rank's thread has its part on the disk: a kill at any moment before leaves the one before whole.
// There is one at a time: start() waits for the last.
//
// Threads: one rank, one thread calls; the writer's own thread reads the copy and touches files,
// and never communicates. start, poll and finish are collective and throw on every rank what went
// wrong on any, after which the next may be started.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "model/checkpoint.h"

namespace sinew::model {

template <typename W>
class CheckpointDraft;

template <typename T>
class CheckpointWriter {
 public:
  using W = kernels::Wide<T>;

  // before_write runs in the thread before it opens its files: tests hold it up or let it fail.
  CheckpointWriter(Stage<T>& stage, Optimizer<T>& optimizer, Parallel& parallel,
                   std::function<void()> before_write = {});
  // Waits for the thread. What was not finished stays aside and is never resumed from.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // keep_last: as save_checkpoint's.
  void start(const std::string& directory, const TrainingState& state, std::int64_t keep_last = 0);
  // The same on all ranks.
  [[nodiscard]] bool pending() const { return draft_ != nullptr; }
  // Makes the checkpoint the newest if all ranks have written.
  void poll();
  // Waits until they have.
  void finish();

 private:
  void complete();

  Stage<T>& stage_;
  Optimizer<T>& optimizer_;
  Parallel& parallel_;
  std::function<void()> before_write_;
  std::unique_ptr<CheckpointDraft<W>> draft_;
  std::thread thread_;
  std::exception_ptr error_;        // of the thread; read after joining it
  std::atomic<bool> done_ = false;  // release by the thread, acquire by poll()
};

}  // namespace sinew::model
